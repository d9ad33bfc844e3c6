"""Which waiting pods the machines on their way will take. Pure.

A pod that one of them will take waits for it and asks for nothing. To ask only whether a machine
*could* hold a pod is not enough: while a cluster grows some machine is always on its way, bought
for other pods, and a pod that nothing was bought for would never ask. So the machines are filled,
as far as requests, selectors, taints and the domains that running pods leave say what fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bigfleet.controllers.pod_controller.nodes import Machine
from bigfleet.controllers.pod_controller.shapes import Shape
from bigfleet.model.need import HOSTNAME_LABEL

# Beyond so many machines, the largest of those on their way, everybody is said to wait.
MAX_MACHINES = 100

Where = Callable[[Shape], Sequence[Mapping[str, Any]]]


def unplaced_pods(
    machines: Iterable[Machine], waiting: Mapping[Shape, int], where: Where
) -> dict[Shape, int]:
    """How many of the `waiting` pods of each shape find no place on `machines`.

    `where` says, as node selector requirements, which domains other pods leave to a shape. The
    largest pods come first, as they fit in the fewest places.
    """
    machines_left = sorted(
        map(_RemainingCapacity, machines), key=lambda remaining: remaining.size, reverse=True
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


class _RemainingCapacity:
    """What is still free on a machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._free = machine, dict(machine.allocatable)
        self.size = self._free.get("cpu", 0)

    def take(self, shape: Shape, count: int, domains: Sequence[Mapping[str, Any]]) -> int:
        """Give up to `count` pods of `shape` their places; how many found one."""
        machine = self._machine
        if not machine.could_fit(shape) or not all(_allows(each, machine) for each in domains):
            return 0
        requests = [(name, amount) for name, amount in shape.requests.items() if amount > 0]
        fit = min((self._free.get(name, 0) // amount for name, amount in requests), default=count)
        if any(
            p.topology_key == HOSTNAME_LABEL and p.include(shape) for p in shape.anti_affinity_terms
        ):
            fit = min(fit, 1)
        taken = min(fit, count)
        for name, amount in requests:
            self._free[name] -= amount * taken
        return taken


def _allows(requirement: Mapping[str, Any], machine: Machine) -> bool:
    """A machine that does not say its domain, as its name before it has one, may be anywhere."""
    domain = machine.labels.get(requirement["key"])
    return domain is None or (domain in requirement["values"]) == (requirement["operator"] == "In")


def _size(shape: Shape) -> tuple[int, int]:
    return shape.requests.get("cpu", 0), shape.requests.get("memory", 0)
