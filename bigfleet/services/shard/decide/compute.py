"""Computes a decision from a cycle's inputs: pure, so that it may run in any thread."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from bigfleet.engine.cycle_memory import CycleMemory
from bigfleet.engine.decision import Decision
from bigfleet.engine.explain.explain import Explainer
from bigfleet.engine.explain.shortfall_report import ESCALATE_AFTER_CYCLES
from bigfleet.engine.fit.folding import FoldedDemand, fold
from bigfleet.engine.snapshot import Demand, EngineConfig, Fleet, Rows
from bigfleet.model import resources
from bigfleet.model.need import NeedKey
from bigfleet.model.report_limits import MAX_SHORTFALLS
from bigfleet.services.shard.decide import unfolding
from bigfleet.services.shard.decide.cycle_inputs import CycleInputs
from bigfleet.services.shard.decide.demand_status import (
    StatusByCluster,
    statuses_of,
    with_quarantined_needs,
)
from bigfleet.services.shard.decide.hints import HintsByNeed, hints_of
from bigfleet.services.shard.decide.quarantine import Quarantine, decide_without_failing_needs
from bigfleet.services.shard.records.wants import KeysOf

Decide = Callable[[Fleet, Demand, CycleMemory, EngineConfig, float], Decision]


@dataclass(frozen=True)
class AgedShortfall:
    """A need that has been short for long, with its deficit and the reason."""

    need: NeedKey
    deficit: Mapping[str, int]
    why: str

    def fields(self) -> dict[str, object]:
        """Fields of the journal line."""
        return {
            "cluster": self.need.cluster,
            "need": self.need.fingerprint,
            "group": self.need.group,
            "lacks": resources.texts(dict(sorted(self.deficit.items()))),
            "note": self.why,
        }


@dataclass(frozen=True)
class CycleResult:
    """A decision and its inputs: `demand` is `inputs.asked` in the shape in which it is served,
    `keys` name its needs, and `aged_shortfalls` are those that became old in this cycle. `hints`
    and `statuses` are None when none are due. The needs in `quarantine` are part of none of these;
    those in `newly_quarantined` failed in this cycle. `unfolded` is the next cycle's.
    """

    inputs: CycleInputs
    fleet: Fleet
    demand: Demand
    keys: Sequence[NeedKey]
    decision: Decision
    aged_shortfalls: Sequence[AgedShortfall]
    hints: HintsByNeed | None
    statuses: StatusByCluster | None = None
    quarantine: Quarantine = field(default_factory=dict)
    newly_quarantined: Collection[NeedKey] = ()
    unfolded: frozenset[NeedKey] = frozenset()
    #: by need of `inputs.asked`: the index of the need in `demand` that includes it
    served_by: Rows = field(default_factory=lambda: np.empty(0, np.intp))

    def machine_id(self, row: int) -> str:
        """The machine in `row` of the fleet."""
        return bytes(self.inputs.machine_ids[row]).decode()


def compute(inputs: CycleInputs, decide: Decide, settings: EngineConfig) -> CycleResult:
    """Fold the demand, match machines with needs, decide, and derive hints and statuses."""

    def compute_for(asked: Demand) -> CycleResult:
        return _compute(replace(inputs, asked=asked), decide, settings)

    clusters = inputs.fleet.clusters
    outcome = decide_without_failing_needs(clusters, inputs.asked, inputs.quarantine, compute_for)
    result = replace(
        outcome.decided, quarantine=outcome.quarantine, newly_quarantined=outcome.found
    )
    if outcome.quarantine and result.statuses is not None:
        return replace(result, statuses=with_quarantined_needs(result.statuses, outcome.quarantine))
    return result


def _compute(inputs: CycleInputs, decide: Decide, settings: EngineConfig) -> CycleResult:
    folding = _fold(inputs)
    demand, names = folding.demand, inputs.fleet.clusters
    keys, fleet = KeysOf(demand, names), inputs.wants.apply_to(inputs.fleet, demand)
    decision = decide(fleet, demand, inputs.cycle_memory, settings, inputs.now_seconds)
    aged_shortfalls = list(_aged_shortfalls(fleet, demand, keys, decision))
    hints = hints_of(inputs.fleet, inputs.asked, inputs.hints_for) if inputs.hints_for else None
    statuses = (
        statuses_of(fleet, inputs.asked, demand, folding.served_by, decision)
        if inputs.report_shortfalls
        else None
    )
    return CycleResult(
        inputs,
        fleet,
        demand,
        keys,
        decision,
        aged_shortfalls,
        hints,
        statuses,
        served_by=folding.served_by,
        unfolded=unfolding.next_unfolded(inputs.unfolded, inputs.asked, folding, names, decision),
    )


def _fold(inputs: CycleInputs) -> FoldedDemand:
    """What is asked, as it is served in this cycle."""
    asked = inputs.wants.numbered(inputs.asked, inputs.fleet.clusters)
    served_as_gangs = partial(unfolding.with_machines, asked, inputs.wants)
    return fold(inputs.fleet, asked, inputs.unfolded, served_as_gangs)


def _aged_shortfalls(
    fleet: Fleet, demand: Demand, keys: Sequence[NeedKey], decision: Decision
) -> Iterator[AgedShortfall]:
    """Each shortfall that has just exceeded the age limit, with its reason."""
    just_aged = ESCALATE_AFTER_CYCLES + 1
    aged = [each for each in decision.shortfalls if each.age_cycles == just_aged][:MAX_SHORTFALLS]
    if not aged:
        return
    explainer = Explainer(fleet, demand, decision)
    for shortfall in aged:
        _, why = explainer.reason_and_message(shortfall.need)
        yield AgedShortfall(keys[shortfall.need], shortfall.deficit, why)
