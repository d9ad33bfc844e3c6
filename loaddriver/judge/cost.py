"""Machines and cost: what a run held over time, against lower bounds for its pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from loaddriver.judge.active_pods import pods_by_cluster
from loaddriver.judge.facts import FleetFacts, RunFacts
from loaddriver.record.journal import Journal
from loaddriver.record.nodes import node_lifetimes
from loaddriver.record.recorder import Observations
from loaddriver.record.rows import PodRow
from loaddriver.sizing.fit import Offering, PodRequirements, group_offerings
from loaddriver.sizing.inventory import InventoryMachine
from loaddriver.sizing.lower_bound import least_dollars_per_hour, least_machines

# More than any run needs of a kind. The search for the bound gets worse with still larger numbers.
_PLENTY = 30
_UNPAID = ("SPECULATIVE", "GONE")


class CostSnapshot(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was held at a point in time, and lower bounds for the pods at that time.

    `machines` are Nodes, `dollars_per_hour` is the price of all machines paid for, including idle
    ones. `least_machines` and `least_dollars_per_hour` are bounds over all machines of the fleet,
    `least_of_held` and `least_dollars_of_held` over those held. Bounds consider sizes, node labels,
    taints and DaemonSets, but neither racks nor pod affinity. A ratio is null if its bound is 0.
    """

    machines: int
    dollars_per_hour: float
    least_machines: int
    least_of_held: int
    least_dollars_per_hour: float
    least_dollars_of_held: float
    machines_ratio: float | None
    held_ratio: float | None
    dollars_ratio: float | None
    held_dollars_ratio: float | None


class FleetCost(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Machines and cost of a run. Means are over the soak; `ramp_end` is null without a soak.
    `source` of the machines paid for: the shards' journals, or the Nodes alone.
    """

    mean_machines: float | None
    mean_dollars_per_hour: float | None
    ramp_end: CostSnapshot | None
    end: CostSnapshot
    source: str


@dataclass(frozen=True)
class HeldSpan:
    """A period in which a machine was held; an end of None is open. Only Nodes have a cluster."""

    machine: InventoryMachine
    begin_micros: int
    end_micros: int | None
    cluster: str = ""

    def covers(self, at_micros: int) -> bool:
        """Whether it was held at that time."""
        return self.begin_micros <= at_micros and (
            self.end_micros is None or at_micros < self.end_micros
        )

    def overlap(self, begin_micros: int, end_micros: int) -> tuple[int, int] | None:
        """The begin and end of the overlap with a period; None if there is none."""
        end = end_micros if self.end_micros is None else min(self.end_micros, end_micros)
        begin = max(self.begin_micros, begin_micros)
        return (begin, end) if begin < end else None

    def overlap_micros(self, begin_micros: int, end_micros: int) -> int:
        """The length of the overlap with a period, in microseconds."""
        begin, end = self.overlap(begin_micros, end_micros) or (0, 0)
        return end - begin


def node_spans(observed: Sequence[Observations], fleet: FleetFacts) -> list[HeldSpan]:
    """The periods in which machines of the fleet were Nodes."""
    machines = fleet.nodes
    return [
        HeldSpan(machines[name], lifetime.created_micros, lifetime.deleted_micros, each.cluster)
        for each in observed
        for name, lifetimes in node_lifetimes(each).items()
        if name in machines
        for lifetime in lifetimes
    ]


def paid_spans(journal: Journal, fleet: FleetFacts, started_micros: int) -> list[HeldSpan]:
    """The periods in which machines were paid for: from creation to deletion."""
    return [
        span
        for machine in fleet.machines.values()
        for span in _paid(machine, journal, started_micros)
    ]


def cost_section(
    facts: RunFacts,
    observed: Sequence[Observations],
    rows: Sequence[PodRow],
    journal: Journal | None,
) -> FleetCost | None:
    """The section; None if the fleet or the price of a Node is unknown."""
    fleet = facts.fleet
    if fleet is None or fleet.unpriced_nodes:
        return None
    nodes = node_spans(observed, fleet)
    journaled = journal is not None and bool(journal.stories)
    paid = paid_spans(journal, fleet, facts.started_micros) if journal and journaled else nodes
    end = max((each.ended_micros for each in observed), default=facts.ended_micros)
    soak_started = facts.soak_started_micros
    return FleetCost(
        mean_machines=None
        if soak_started is None
        else _mean([(span, 1.0) for span in nodes], soak_started, end),
        mean_dollars_per_hour=None
        if soak_started is None
        else dollars_per_hour(paid, fleet, soak_started, end),
        ramp_end=None if soak_started is None else _held(fleet, rows, nodes, paid, soak_started),
        end=_held(fleet, rows, nodes, paid, end),
        source="journal" if journaled else "nodes",
    )


def _paid(machine: InventoryMachine, journal: Journal, started_micros: int) -> Iterator[HeldSpan]:
    begin = started_micros if machine.state == "IDLE" else None
    for event in journal.stories.get(machine.id, ()):
        if not event.reached:
            continue
        if begin is None and event.state not in _UNPAID:
            begin = event.at_micros
        elif begin is not None and event.state in _UNPAID:
            yield HeldSpan(machine, begin, event.at_micros)
            begin = None
    if begin is not None:
        yield HeldSpan(machine, begin, None)


def dollars_per_hour(
    paid: Sequence[HeldSpan], fleet: FleetFacts, begin_micros: int, end_micros: int
) -> float | None:
    """What the machines cost on average in a period, at the prices of each moment; None if the
    period has no length.
    """
    priced = [
        (span, fleet.market.mean_price(span.machine, *both))
        for span in paid
        if (both := span.overlap(begin_micros, end_micros)) is not None
    ]
    return _mean(priced, begin_micros, end_micros)


def _mean(weighted: Sequence[tuple[HeldSpan, float]], begin: int, end: int) -> float | None:
    if end <= begin:
        return None
    total = sum(weight * span.overlap_micros(begin, end) for span, weight in weighted)
    return round(total / (end - begin), 4)


def _held(
    fleet: FleetFacts,
    rows: Sequence[PodRow],
    nodes: Sequence[HeldSpan],
    paid: Sequence[HeldSpan],
    at_micros: int,
) -> CostSnapshot:
    there = [span for span in nodes if span.covers(at_micros)]
    price = fleet.market.price
    dollars = sum(price(span.machine, at_micros) for span in paid if span.covers(at_micros))
    pods = pods_by_cluster(rows, at_micros, fleet)
    everyone: Counter[PodRequirements] = Counter()
    for own in pods.values():
        everyone.update(own)
    offerings = offerings_at(fleet, everyone, at_micros)
    least = sum(least_machines(own, offerings) for own in pods.values())
    of_held, dollars_of_held = 0, 0.0
    for cluster, own in pods.items():
        own_spans = (span for span in there if span.cluster == cluster)
        held = [fleet.market.priced(span.machine, at_micros) for span in own_spans]
        all_of_them = sum(machine.price_per_hour for machine in held)
        offers_held = group_offerings(own, held, fleet.daemon_sets)
        # Pods that still wait may need more machines than there are.
        of_held += min(len(held), least_machines(own, offers_held))
        dollars_of_held += min(all_of_them, least_dollars_per_hour(own, offers_held))
    least_dollars = least_dollars_per_hour(everyone, offerings)
    return CostSnapshot(
        machines=len(there),
        dollars_per_hour=round(dollars, 4),
        least_machines=least,
        least_of_held=of_held,
        least_dollars_per_hour=round(least_dollars, 4),
        least_dollars_of_held=round(dollars_of_held, 4),
        machines_ratio=ratio(len(there), least),
        held_ratio=ratio(len(there), of_held),
        dollars_ratio=ratio(dollars, least_dollars),
        held_dollars_ratio=ratio(dollars, dollars_of_held),
    )


def offerings_at(
    fleet: FleetFacts, pods: Iterable[PodRequirements], at_micros: int
) -> Counter[Offering]:
    """How many machines of each kind may be held, at the prices of that time."""
    machines = (fleet.market.priced(machine, at_micros) for machine in fleet.machines.values())
    offerings = group_offerings(pods, machines, fleet.daemon_sets)
    if fleet.own_nodes:
        for kind in offerings:
            if kind.dollars_per_hour:
                offerings[kind] *= _PLENTY
    return offerings


def ratio(held: float, least: float) -> float | None:
    """How many times the least was held; None if the least is 0."""
    return round(held / least, 4) if least > 0 else None
