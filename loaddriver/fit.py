"""Which pods may run on which machines, and what of a machine is theirs to use.

Amounts are in the units of `bigfleet.model.resources`, by resource name, a pod slot among them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from bigfleet.model import resources
from loaddriver.archetypes import Archetype, Toleration
from loaddriver.catalog import Catalog
from loaddriver.instance_types import DaemonSet
from loaddriver.inventory import SeedMachine, SeedTaint
from loaddriver.manifests import INSTANCE_TYPE_KEY, ZONE_KEY, quantities_of
from loaddriver.plan_records import Workload

Amounts = Mapping[str, int]
_KEEPS_PODS_OFF = ("NoSchedule", "NoExecute")


@dataclass(frozen=True)
class PodNeeds:
    """What one pod asks of its machine. `labels` gives the values that it accepts, by key.

    What pods ask of each other (spreading, sharing a rack, keeping apart) is not part of it.
    """

    requests: tuple[tuple[str, int], ...]
    labels: tuple[tuple[str, tuple[str, ...]], ...] = ()
    tolerations: tuple[Toleration, ...] = ()

    def accepts(self, offer: Offer) -> bool:
        """Whether it may run there, for all that is not resources."""
        labels = dict(offer.labels)
        return all(labels.get(key) in values for key, values in self.labels) and all(
            _tolerated(taint, self.tolerations) for taint in offer.taints
        )

    def fits(self, offer: Offer) -> bool:
        """Whether it may run there, with nobody else beside it but DaemonSets' pods."""
        return self.accepts(offer) and self.places(offer) > 0

    def places(self, offer: Offer) -> int:
        """How many such pods its room holds."""
        room = dict(offer.room)
        return max(0, min(room.get(name, 0) // amount for name, amount in self.requests))


@dataclass(frozen=True)
class Offer:
    """A machine as pods see it: `room` is what DaemonSets leave of it."""

    room: tuple[tuple[str, int], ...]
    labels: tuple[tuple[str, str], ...]
    taints: tuple[SeedTaint, ...]
    dollars_per_hour: float

    def less(self, used: Amounts) -> Offer:
        """The same once so much of it is taken."""
        left = ((name, amount - used.get(name, 0)) for name, amount in self.room)
        return replace(self, room=tuple(left))


def pod_needs(archetype: Archetype, size: int) -> PodNeeds:
    """What a pod of an archetype and one of its sizes asks for."""
    own = archetype.sizes[size]
    accepted: dict[str, tuple[str, ...]] = {
        INSTANCE_TYPE_KEY: own.instance_types,
        ZONE_KEY: archetype.zones,
        **{key: (value,) for key, value in archetype.node_selector.items()},
    }
    return PodNeeds(
        requests=_sorted(resources.parse_requests({**quantities_of(own), "pods": "1"})),
        labels=tuple(sorted((key, values) for key, values in accepted.items() if values)),
        tolerations=archetype.tolerations,
    )


def offer_of(machine: SeedMachine, agents: Iterable[DaemonSet]) -> Offer:
    """A machine, less what the DaemonSets that match it take."""
    room = resources.parse_capacity(machine.resources)
    whole = Offer(
        room=_sorted(room),
        labels=tuple(sorted(machine.labels.items())),
        taints=machine.taints,
        dollars_per_hour=machine.price_per_hour,
    )
    for needs in map(agent_needs, agents):
        if needs.accepts(whole):
            for name, amount in needs.requests:
                room[name] = room.get(name, 0) - amount
    return Offer(_sorted(room), whole.labels, whole.taints, whole.dollars_per_hour)


def agent_needs(agent: DaemonSet) -> PodNeeds:
    """What the pod of a DaemonSet asks for."""
    return PodNeeds(
        requests=_sorted(resources.parse_requests({**quantities_of(agent), "pods": "1"})),
        labels=tuple(sorted((key, (value,)) for key, value in agent.node_selector.items())),
        tolerations=agent.tolerations,
    )


def pods_by_needs(workloads: Iterable[Workload], catalog: Catalog) -> Counter[PodNeeds]:
    """How many pods ask for the same."""
    archetypes = {each.name: each for each in catalog.archetypes}
    pods: Counter[PodNeeds] = Counter()
    for each in workloads:
        pods[pod_needs(archetypes[each.archetype], each.size)] += each.replicas
    return pods


def offers_for(
    pods: Iterable[PodNeeds],
    machines: Iterable[SeedMachine],
    agents: Sequence[DaemonSet],
    also: Sequence[str] = (),
) -> Counter[Offer]:
    """How many machines are the same to these pods: labels that none of them asks for are no
    difference, but those that `also` names.
    """
    asked = {key for needs in pods for key, _ in needs.labels} | {*also}
    offers: Counter[Offer] = Counter()
    for machine in machines:
        whole = offer_of(machine, agents)
        labels = tuple((key, value) for key, value in whole.labels if key in asked)
        offers[replace(whole, labels=labels)] += 1
    return offers


def _tolerated(taint: SeedTaint, tolerations: Iterable[Toleration]) -> bool:
    return taint.effect not in _KEEPS_PODS_OFF or any(
        each.key == taint.key
        and each.value in (None, taint.value)
        and each.effect in (None, taint.effect)
        for each in tolerations
    )


def _sorted(amounts: Amounts) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(amounts.items()))
