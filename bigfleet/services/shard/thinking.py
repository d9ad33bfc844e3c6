"""The step from what is known to what should be done: pure, so that it may run in any thread."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bigfleet.engine.cycle_memory import CycleMemory
from bigfleet.engine.decision import Decision
from bigfleet.engine.explain.explain import Explainer
from bigfleet.engine.explain.shortfall_report import ESCALATE_AFTER_CYCLES, MAX_ROWS
from bigfleet.engine.fit.normalise import fold
from bigfleet.engine.snapshot import Demand, EngineConfig, Fleet
from bigfleet.model import resources
from bigfleet.model.need import NeedKey
from bigfleet.services.shard.failures import Failure, Offering
from bigfleet.services.shard.hints import HintsByNeed, hints_of
from bigfleet.services.shard.quarantine import Quarantine, decide_without_culprits
from bigfleet.services.shard.statuses import StatusByCluster, statuses_of, with_left_out
from bigfleet.services.shard.wants import Wants

Decide = Callable[[Fleet, Demand, CycleMemory, EngineConfig, float], Decision]


@dataclass(frozen=True)
class View:
    """What is known at one moment, safe from later changes. `asked` is the demand as reported,
    `cycle_memory` what the last decision handed on, `machine_ids` names the rows, `hinted` are the
    clusters that are to be told what could be had, `report_short` says whether all are to be told
    what is short, `quarantine` has the needs that the last decision left out, and `unavailable`
    what is not bought now because it has failed.
    """

    fleet: Fleet
    machine_ids: Sequence[bytes]
    wants: Wants
    asked: Demand
    now_seconds: float
    cycle_memory: CycleMemory
    hinted: Collection[str] = ()
    report_short: bool = False
    quarantine: Quarantine = field(default_factory=dict)
    unavailable: Mapping[Offering, Failure] = field(default_factory=dict)


@dataclass(frozen=True)
class Complaint:
    """A need that stays short, of what, and why."""

    need: NeedKey
    deficit: Mapping[str, int]
    why: str

    def fields(self) -> dict[str, object]:
        """As the journal tells it."""
        return {
            "cluster": self.need.cluster,
            "need": self.need.fingerprint,
            "group": self.need.group,
            "lacks": resources.texts(dict(sorted(self.deficit.items()))),
            "note": self.why,
        }


@dataclass(frozen=True)
class CycleResult:
    """A decision and what it was made from: `demand` is `view.asked` in the shape in which it is
    served, `keys` name its needs, and `complaints` tell of those that have come to stay short.
    `hints` and `statuses` are None when nobody is to be told any. Nothing of this knows the needs
    in `quarantine`, of which those in `newly_quarantined` were found to fail just now.
    """

    view: View
    fleet: Fleet
    demand: Demand
    keys: Sequence[NeedKey]
    decision: Decision
    complaints: Sequence[Complaint]
    hints: HintsByNeed | None
    statuses: StatusByCluster | None = None
    quarantine: Quarantine = field(default_factory=dict)
    newly_quarantined: Collection[NeedKey] = ()

    def machine_id(self, row: int) -> str:
        """The machine in `row` of the fleet."""
        return bytes(self.view.machine_ids[row]).decode()


def think(view: View, decide: Decide, settings: EngineConfig) -> CycleResult:
    """Fold the demand, say which need each machine is meant for, decide, and work out hints."""

    def think_about(asked: Demand) -> CycleResult:
        return _think(replace(view, asked=asked), decide, settings)

    clusters = view.fleet.clusters
    outcome = decide_without_culprits(clusters, view.asked, view.quarantine, think_about)
    thought = replace(
        outcome.result, quarantine=outcome.quarantine, newly_quarantined=outcome.found
    )
    if outcome.quarantine and thought.statuses is not None:
        return replace(thought, statuses=with_left_out(thought.statuses, outcome.quarantine))
    return thought


def _think(view: View, decide: Decide, settings: EngineConfig) -> CycleResult:
    folding = fold(view.fleet, view.asked)
    demand = folding.demand
    keys = [
        NeedKey(view.fleet.clusters[cluster], *need.key)
        for need, cluster in zip(demand.needs, demand.cluster.tolist(), strict=True)
    ]
    fleet = view.wants.over(view.fleet, {key: index for index, key in enumerate(keys)})
    decision = decide(fleet, demand, view.cycle_memory, settings, view.now_seconds)
    complaints = list(_complaints(fleet, demand, keys, decision))
    hints = hints_of(view.fleet, view.asked, view.hinted) if view.hinted else None
    statuses = (
        statuses_of(fleet, view.asked, demand, folding.served_by, decision)
        if view.report_short
        else None
    )
    return CycleResult(view, fleet, demand, keys, decision, complaints, hints, statuses)


def _complaints(
    fleet: Fleet, demand: Demand, keys: Sequence[NeedKey], decision: Decision
) -> Iterator[Complaint]:
    """Each lack that has just outlasted all patience: told once, with its reason."""
    aged = [s for s in decision.shortfalls if s.age_cycles == ESCALATE_AFTER_CYCLES + 1][:MAX_ROWS]
    if not aged:
        return
    explainer = Explainer(fleet, demand, decision)
    for shortfall in aged:
        _, why = explainer.reason_and_message(shortfall.need)
        yield Complaint(keys[shortfall.need], shortfall.deficit, why)
