"""Interruptions of spot machines by kind: who had to leave, and how soon all run elsewhere."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from loaddriver.judge.cost import node_spans
from loaddriver.judge.facts import FleetFacts, RunFacts
from loaddriver.judge.latency import bound_batches, bound_wait_groups
from loaddriver.judge.percentiles import Quantiles, quantiles
from loaddriver.record.due import CLOCK_TOLERANCE_MICROS
from loaddriver.record.journal import Event, Journal
from loaddriver.record.recorder import Observations
from loaddriver.record.removals import Cause, PodRemoval, pod_removals
from loaddriver.record.rows import ObjectKey, PodRow
from loaddriver.sizing.inventory import InventoryMachine
from loaddriver.sizing.market import kind_of

# Until a shard has listed what its provider learnt, and has ended the cycle that it is in.
_LEARNT_MICROS = 3 * 1_000_000
# Until the pods of a Node that is gone are collected.
_COLLECTED_MICROS = 90 * 1_000_000
_DISTURBED = (Cause.EVICTED, Cause.LOST)


class Interruptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the notices of interruption led to.

    `machines` were Nodes of their kind when it was given notice. Of the `pods` that ran on Nodes of
    an interrupted kind and had to leave, `evicted` left within the notice and `lost` with the Node.
    The replacement of a pod is due when that left, or its machine was gone: `due_to_bind_seconds`
    are the waits of all of them, and `never_bound` had no node by the end.
    `bought_while_interrupted` counts purchases of an interrupted kind that were decided once its
    shard could know; `joined_of_other_kinds` counts machines that joined a cluster while another
    kind was interrupted; both are null without the shards' journals. `others_disturbed` counts
    bound pods that were evicted or lost for another reason.
    """

    notices: int
    machines: int
    pods: int
    evicted: int
    lost: int
    others_disturbed: int
    never_bound: int
    due_to_bind_seconds: Quantiles
    bought_while_interrupted: int | None
    joined_of_other_kinds: int | None


class _Left(NamedTuple):
    """A pod that had to leave, and when its replacement was due."""

    due_micros: int
    removal: PodRemoval


def interruption_section(
    facts: RunFacts,
    observed: Sequence[Observations],
    rows: Sequence[PodRow],
    journal: Journal | None,
) -> Interruptions | None:
    """The section; None if no kind was interrupted, or an API server's audit log is missing."""
    fleet = facts.fleet
    logged = all(each.audit is not None for each in observed)
    if fleet is None or not fleet.market.plan.interruptions or not logged:
        return None
    end = max((each.ended_micros for each in observed), default=facts.ended_micros)
    ends = [end for end in pod_removals(observed, rows) if end.pod.bound_micros is not None]
    left = sorted(_left(fleet, ends), key=lambda each: each.due_micros)
    causes = [each.removal.cause for each in left]
    market, told = fleet.market, journal if journal is not None and journal.stories else None
    waits, never_bound = _waits(left, rows, end)
    return Interruptions(
        notices=sum(market.at_micros(cut.seconds) < end for cut in market.plan.interruptions),
        machines=_machines(fleet, observed),
        pods=len(left),
        evicted=causes.count(Cause.EVICTED),
        lost=causes.count(Cause.LOST),
        others_disturbed=sum(end.cause in _DISTURBED for end in ends) - len(left),
        never_bound=never_bound,
        due_to_bind_seconds=waits,
        bought_while_interrupted=None if told is None else _bought(fleet, told),
        joined_of_other_kinds=None if told is None else _joined(fleet, told),
    )


def _machines(fleet: FleetFacts, observed: Sequence[Observations]) -> int:
    spans = node_spans(observed, fleet)
    return sum(
        span.covers(fleet.market.at_micros(cut.seconds)) and kind_of(span.machine) == cut.kind
        for cut in fleet.market.plan.interruptions
        for span in spans
    )


def _left(fleet: FleetFacts, ends: Sequence[PodRemoval]) -> Iterator[_Left]:
    """The pods that had to leave Nodes of an interrupted kind."""
    market = fleet.market
    for end in ends:
        machine = fleet.machines.get(end.pod.node)
        if machine is None:
            continue
        if end.cause is Cause.EVICTED and _is_interrupted(fleet, machine, end.at_micros):
            yield _Left(end.at_micros, end)
        elif end.cause is Cause.LOST:
            gone = [
                at
                for cut in market.plan.interruptions
                if cut.kind == kind_of(machine)
                and (at := market.at_micros(cut.gone_seconds)) <= end.at_micros
                and end.at_micros < at + _COLLECTED_MICROS
            ]
            if gone:
                yield _Left(gone[-1], end)


def _waits(left: Sequence[_Left], rows: Sequence[PodRow], end_micros: int) -> tuple[Quantiles, int]:
    """The waits of the replacements, and how many of them were not bound by the end."""
    bound: list[PodRow] = []
    waited: list[float] = []
    censored: list[float] = []
    for due_micros, row in _replacements(left, rows):
        if row is not None and row.bound_micros is not None:
            bound.append(row)
            waited.append(max(0, row.bound_micros - due_micros) / 1e6)
        else:
            until = end_micros if row is None else row.deleted_micros or end_micros
            censored.append(max(0, until - due_micros) / 1e6)
    batches = bound_batches(bound)
    found = quantiles(waited, censored, batches, bound_wait_groups(bound, batches))
    return found, len(censored)


def _replacements(
    left: Sequence[_Left], rows: Sequence[PodRow]
) -> Iterator[tuple[int, PodRow | None]]:
    """When each replacement was due, and the pod; None if it never came.

    It is the first pod of the same workload that the plan did not ask for, that came after the
    other had left and replaces no other.
    """
    came: defaultdict[ObjectKey, deque[PodRow]] = defaultdict(deque)
    for row in sorted(rows, key=lambda each: each.created_micros):
        if row.due_micros is None:
            came[row.cluster, row.workload].append(row)
    for due_micros, removal in left:
        waiting = came[removal.pod.cluster, removal.pod.workload]
        while waiting and waiting[0].created_micros < due_micros - CLOCK_TOLERANCE_MICROS:
            waiting.popleft()
        yield due_micros, waiting.popleft() if waiting else None


def _bought(fleet: FleetFacts, journal: Journal) -> int:
    return sum(
        event.buys
        and _is_interrupted(fleet, machine, event.at_micros)
        and _is_interrupted(fleet, machine, event.at_micros - _LEARNT_MICROS)
        for machine, event in _events(fleet, journal)
    )


def _joined(fleet: FleetFacts, journal: Journal) -> int:
    kinds = {cut.kind for cut in fleet.market.plan.interruptions}
    return sum(
        event.reached == "CONFIGURED"
        and any(fleet.market.interruption(kind, event.at_micros) for kind in kinds)
        and not _is_interrupted(fleet, machine, event.at_micros)
        for machine, event in _events(fleet, journal)
    )


def _events(fleet: FleetFacts, journal: Journal) -> Iterator[tuple[InventoryMachine, Event]]:
    for name, story in journal.stories.items():
        if name in fleet.machines:
            yield from ((fleet.machines[name], event) for event in story)


def _is_interrupted(fleet: FleetFacts, machine: InventoryMachine, at_micros: int) -> bool:
    return fleet.market.interruption(kind_of(machine), at_micros) is not None
