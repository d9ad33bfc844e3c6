"""Where a pod's wait went: parts in a fixed order that add up to the wait exactly.

    seen         its CapacityRequest exists
    rolledUp     its need has reached a shard
    decided      a machine was chosen
    provisioned  the machine exists and begins to boot
    nodeReady    the machine is a ready Node
    scheduled    the scheduler (or the anchor) has bound the pod

A milestone nobody observed is left out, and its time belongs to the next part.
"""

from __future__ import annotations

from collections.abc import Mapping

HOPS = ("seen", "rolledUp", "decided", "provisioned", "nodeReady", "scheduled")


def split(created_micros: int, bound_micros: int, reached: Mapping[str, int]) -> dict[str, int]:
    """Microseconds per hop. `reached` says when each but the last was reached, where known.

    Milestones are held between creation and binding and are never earlier than the one before: a
    machine chosen before the pod came costs that pod nothing.
    """
    parts: dict[str, int] = {}
    position = created_micros
    for hop in HOPS[:-1]:
        if hop in reached:
            moment = min(max(reached[hop], position), max(bound_micros, created_micros))
            parts[hop] = moment - position
            position = moment
    parts["scheduled"] = max(bound_micros, created_micros) - position
    return parts


def plausible(reached: Mapping[str, int | None], bound_micros: int, waited: bool) -> dict[str, int]:
    """The milestones that can have played a part in a pod's binding.

    A pod that landed on a node which was there before it owes nothing to a machine, nor to the
    request for one that was on its way meanwhile: all its wait is the scheduler's. For a pod that
    waited for its node, the acknowledgement is written some time after the roll-up it speaks of:
    the choice of the machine, or else the machine's joining, proves that the roll-up had arrived.
    """
    if not waited:
        return {}
    known = {hop: moment for hop, moment in reached.items() if moment is not None}
    if "rolledUp" in known:
        proof = known.get("decided", known.get("nodeReady", bound_micros))
        latest = max(proof, known.get("seen", proof))
        known["rolledUp"] = min(known["rolledUp"], latest)
    return known
