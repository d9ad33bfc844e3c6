"""Hops: the stages of a pod's wait, in a fixed order; they add up to the wait exactly.

    arrived      the pod exists: what the plan asked for has passed the API server and controllers
    seen         its CapacityRequest exists
    rolledUp     a shard has accepted the roll-up with its need
    decided      a machine was chosen
    provisioned  the machine exists and begins to boot
    nodeReady    the machine is a ready Node
    scheduled    the scheduler (or the anchor) has bound the pod

The time of an unobserved stage counts towards the next one. The wait begins when the plan asks for
the pod, or, for a pod that the plan does not ask for, with its creation: it has no `arrived`.
"""

from __future__ import annotations

from collections.abc import Mapping

HOPS = ("arrived", "seen", "rolledUp", "decided", "provisioned", "nodeReady", "scheduled")


def split(began_micros: int, bound_micros: int, reached: Mapping[str, int]) -> dict[str, int]:
    """Microseconds per hop. `reached` has the end of each hop but the last, if known.

    Ends are clamped between the beginning of the wait and binding, and to the hop before: a machine
    chosen before the pod was created adds no wait.
    """
    parts: dict[str, int] = {}
    position = began_micros
    for hop in HOPS[:-1]:
        if hop in reached:
            moment = min(max(reached[hop], position), max(bound_micros, began_micros))
            parts[hop] = moment - position
            position = moment
    parts["scheduled"] = max(bound_micros, began_micros) - position
    return parts


def plausible(reached: Mapping[str, int | None], bound_micros: int, waited: bool) -> dict[str, int]:
    """The milestones that can have contributed to a pod's wait.

    Once it exists, the wait of a pod whose node was ready before it is the scheduler's alone. A pod
    may take a machine that was chosen before its own need reached a shard: then it did not wait for
    its roll-up, which counts only until the choice of the machine, or else its joining.
    """
    known = {hop: moment for hop, moment in reached.items() if moment is not None}
    if not waited:
        return {hop: moment for hop, moment in known.items() if hop == "arrived"}
    if "rolledUp" in known:
        proof = known.get("decided", known.get("nodeReady", bound_micros))
        latest = max(proof, known.get("seen", proof))
        known["rolledUp"] = min(known["rolledUp"], latest)
    return known
