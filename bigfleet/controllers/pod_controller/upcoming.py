"""Which waiting pods will fit on the upcoming machines. Pure.

Such pods wait and request no additional machine. It is not enough to check whether a machine could
fit a pod: in a growing cluster some machine is always joining, acquired for other pods, and a pod
without one would wait for ever. So pods are packed onto the machines, by requests, selectors,
taints, and the domains that running pods allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bigfleet.controllers.pod_controller.nodes import Machine
from bigfleet.controllers.pod_controller.shapes import Shape
from bigfleet.model.labels import HOSTNAME_LABEL

# Only so many upcoming machines, the largest ones, are packed.
MAX_MACHINES = 100

Where = Callable[[Shape], Sequence[Mapping[str, Any]]]


def unplaced_pods(
    machines: Iterable[Machine], waiting: Mapping[Shape, int], where: Where
) -> dict[Shape, int]:
    """How many of the `waiting` pods of each shape do not fit on `machines`.

    `where` returns the domains that other pods allow a shape, as node selector requirements. The
    largest pods are packed first.
    """
    machines_left = sorted(
        map(RemainingCapacity, machines), key=lambda remaining: remaining.size, reverse=True
    )[:MAX_MACHINES]
    left = {}
    for shape in sorted(waiting, key=_size, reverse=True):
        count = waiting[shape]
        domains = (
            where(shape)
            if machines_left and (shape.affinity_terms or shape.anti_affinity_terms or shape.spread)
            else ()
        )
        for remaining in machines_left:
            if not count:
                break
            count -= remaining.take(shape, count, domains)
        left[shape] = count
    return left


class RemainingCapacity:
    """The free capacity of a machine, of which pods take their part."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._free = machine, dict(machine.allocatable)
        self._taken: list[Shape] = []
        self.size = self._free.get("cpu", 0)

    def take(self, shape: Shape, count: int, domains: Sequence[Mapping[str, Any]]) -> int:
        """Place up to `count` pods of `shape`; return how many fit."""
        machine = self._machine
        if not machine.could_fit(shape) or not all(_allows(each, machine) for each in domains):
            return 0
        requests = [(name, amount) for name, amount in shape.requests.items() if amount > 0]
        fit = min((self._free.get(name, 0) // amount for name, amount in requests), default=count)
        if any(avoids(shape, other) or avoids(other, shape) for other in self._taken):
            return 0
        if avoids(shape, shape):
            fit = min(fit, 1)
        taken = min(fit, count)
        if taken:
            self._taken.append(shape)
        for name, amount in requests:
            self._free[name] -= amount * taken
        return taken


def avoids(shape: Shape, other: Shape) -> bool:
    """Whether a pod of `shape` must not run on the Node of one of `other`."""
    terms = (p for p in shape.anti_affinity_terms if p.topology_key == HOSTNAME_LABEL)
    return any(peers.include(other) for peers in terms)


def _allows(requirement: Mapping[str, Any], machine: Machine) -> bool:
    """Whether the machine meets it; one without the label (its hostname) may be anywhere."""
    domain = machine.labels.get(requirement["key"])
    return domain is None or (domain in requirement["values"]) == (requirement["operator"] == "In")


def _size(shape: Shape) -> tuple[int, int]:
    return shape.requests.get("cpu", 0), shape.requests.get("memory", 0)
