"""Which pods fit which machines.

Amounts are in the units of `bigfleet.model.resources`, by resource name, including pod slots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from bigfleet.model import resources
from loaddriver.plan.manifests import INSTANCE_TYPE_KEY, ZONE_KEY, quantities_of
from loaddriver.plan.records import Workload
from loaddriver.profile.archetypes import Archetype, Toleration
from loaddriver.profile.catalog import Catalog
from loaddriver.profile.instance_types import DaemonSet
from loaddriver.sizing.inventory import InventoryMachine, InventoryTaint

Amounts = Mapping[str, int]
_BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")


@dataclass(frozen=True)
class PodRequirements:
    """What one pod requires of its machine. `labels` has the accepted values, by key.

    Constraints between pods (spread, co-location, anti-affinity) are not included.
    """

    requests: tuple[tuple[str, int], ...]
    labels: tuple[tuple[str, tuple[str, ...]], ...] = ()
    tolerations: tuple[Toleration, ...] = ()

    def accepts(self, offering: Offering) -> bool:
        """Whether labels and taints allow the pod; resources are ignored."""
        labels = dict(offering.labels)
        return all(labels.get(key) in values for key, values in self.labels) and all(
            _tolerated(taint, self.tolerations) for taint in offering.taints
        )

    def is_served_by(self, offering: Offering) -> bool:
        """Whether machines of this kind serve such pods: labels and taints allow them, and there is
        some of every resource, however little.
        """
        available = dict(offering.available)
        has_all = all(available.get(name, 0) > 0 for name, amount in self.requests if amount)
        return has_all and self.accepts(offering)

    def fits(self, offering: Offering) -> bool:
        """Whether the pod fits on an otherwise empty machine."""
        return self.accepts(offering) and self.count_fitting(offering) > 0

    def count_fitting(self, offering: Offering) -> int:
        """How many such pods the available resources hold."""
        available = dict(offering.available)
        return max(0, min(available.get(name, 0) // amount for name, amount in self.requests))


@dataclass(frozen=True)
class Offering:
    """A machine as pods see it; `available` is allocatable minus DaemonSet pods."""

    available: tuple[tuple[str, int], ...]
    labels: tuple[tuple[str, str], ...]
    taints: tuple[InventoryTaint, ...]
    dollars_per_hour: float

    def minus(self, used: Amounts) -> Offering:
        """Return the offering with `used` subtracted."""
        left = ((name, amount - used.get(name, 0)) for name, amount in self.available)
        return replace(self, available=tuple(left))


def pod_requirements(archetype: Archetype, size: int) -> PodRequirements:
    """The requirements of a pod of an archetype and size."""
    own = archetype.sizes[size]
    accepted: dict[str, tuple[str, ...]] = {
        INSTANCE_TYPE_KEY: own.instance_types,
        ZONE_KEY: archetype.zones,
        **{key: (value,) for key, value in archetype.node_selector.items()},
    }
    return PodRequirements(
        requests=_sorted(resources.parse_requests({**quantities_of(own), "pods": "1"})),
        labels=tuple(sorted((key, values) for key, values in accepted.items() if values)),
        tolerations=archetype.tolerations,
    )


def offering_of(machine: InventoryMachine, agents: Iterable[DaemonSet]) -> Offering:
    """The offering of a machine, minus the DaemonSet pods that match it."""
    available = resources.parse_capacity(machine.resources)
    whole = Offering(
        available=_sorted(available),
        labels=tuple(sorted(machine.labels.items())),
        taints=machine.taints,
        dollars_per_hour=machine.price_per_hour,
    )
    for requirements in map(daemon_pod_requirements, agents):
        if requirements.accepts(whole):
            for name, amount in requirements.requests:
                available[name] = available.get(name, 0) - amount
    return Offering(_sorted(available), whole.labels, whole.taints, whole.dollars_per_hour)


def daemon_pod_requirements(agent: DaemonSet) -> PodRequirements:
    """The requirements of a DaemonSet pod."""
    return PodRequirements(
        requests=_sorted(resources.parse_requests({**quantities_of(agent), "pods": "1"})),
        labels=tuple(sorted((key, (value,)) for key, value in agent.node_selector.items())),
        tolerations=agent.tolerations,
    )


def pods_by_requirements(
    workloads: Iterable[Workload], catalog: Catalog
) -> Counter[PodRequirements]:
    """Count the pods with equal requirements."""
    archetypes = {each.name: each for each in catalog.archetypes}
    pods: Counter[PodRequirements] = Counter()
    for each in workloads:
        pods[pod_requirements(archetypes[each.archetype], each.size)] += each.replicas
    return pods


def group_offerings(
    pods: Iterable[PodRequirements],
    machines: Iterable[InventoryMachine],
    agents: Sequence[DaemonSet],
    extra_keys: Sequence[str] = (),
) -> Counter[Offering]:
    """Count the machines that are equivalent for these pods.

    Only labels that a pod selects, and `extra_keys`, make a difference.
    """
    relevant_keys = {key for requirements in pods for key, _ in requirements.labels} | {*extra_keys}
    offerings: Counter[Offering] = Counter()
    for machine in machines:
        whole = offering_of(machine, agents)
        labels = tuple((key, value) for key, value in whole.labels if key in relevant_keys)
        offerings[replace(whole, labels=labels)] += 1
    return offerings


def _tolerated(taint: InventoryTaint, tolerations: Iterable[Toleration]) -> bool:
    return taint.effect not in _BLOCKING_EFFECTS or any(
        each.key == taint.key
        and each.value in (None, taint.value)
        and each.effect in (None, taint.effect)
        for each in tolerations
    )


def _sorted(amounts: Amounts) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(amounts.items()))
