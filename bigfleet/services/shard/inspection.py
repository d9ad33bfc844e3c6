"""What the last cycle made of each need, and why: views for people, built only when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from bigfleet.api import need_codec
from bigfleet.api.v1alpha1 import provider_pb2
from bigfleet.api.v1alpha1 import shardread_pb2 as wire
from bigfleet.engine.decision import ActionType
from bigfleet.engine.explain.explain import Explainer, Explanation, PlacedMachine
from bigfleet.engine.fit.normalise import fold
from bigfleet.engine.snapshot import Flags
from bigfleet.model import resources
from bigfleet.model.machine import MachineState
from bigfleet.model.need import NeedKey
from bigfleet.services.shard.failures import Offering, words
from bigfleet.services.shard.kinds import INSTANCE_TYPE_LABEL, ZONE_LABEL
from bigfleet.services.shard.quarantine import WHY_LEFT_OUT, LeftOut
from bigfleet.services.shard.thinking import CycleResult

_S = MachineState


def needs(thought: CycleResult, request: wire.InspectNeedsRequest) -> Iterator[wire.NeedView]:
    """The needs that `request` asks for, in the order in which they are served."""
    explainer = Explainer(thought.fleet, thought.demand, thought.decision)
    wanted = _wanted(thought, request)
    shown = 0
    for index, key in enumerate(thought.keys):
        if key in wanted and not 0 < request.limit <= shown:
            shown += 1
            view = _view(thought, explainer.need(index))
            view.unavailable_offerings.extend(_unavailable(thought, explainer.accepts(index)))
            yield view
    for key, left_out in thought.quarantine.items():
        if _meets(key, request) and not 0 < request.limit <= shown:
            shown += 1
            yield _of_left_out(key, left_out)


def _of_left_out(key: NeedKey, left_out: LeftOut) -> wire.NeedView:
    return wire.NeedView(
        need=need_codec.need_to_wire(left_out.need),
        cluster_id=key.cluster,
        profile_fingerprint=key.fingerprint,
        served_priority=left_out.need.priority,
        residual_deficit=_amounts(left_out.need.aggregate),
        short_sizes=need_codec.sizes_to_wire(left_out.need.sizes),
        unmet_reason_text=WHY_LEFT_OUT.format(error=left_out.error),
    )


def _unavailable(thought: CycleResult, accepted: Flags) -> Iterator[str]:
    """What is not bought now of all that the need accepts, in words."""
    if not thought.view.unavailable:
        return
    flavours = thought.fleet.flavours
    offerings = {Offering.of(flavours[number]) for number in np.flatnonzero(accepted).tolist()}
    resting = {o: f for o, f in thought.view.unavailable.items() if o in offerings}
    yield from words(resting, thought.view.now_seconds)


def _wanted(thought: CycleResult, request: wire.InspectNeedsRequest) -> set[NeedKey]:
    """Keys as served. An asked need is looked up as reported, and then as what serves it."""
    served = {key for key in thought.keys if _meets(key, request)}
    asked, names = thought.view.asked, thought.view.fleet.clusters
    served_by = fold(thought.view.fleet, asked).served_by
    for need, cluster, at in zip(asked.needs, asked.cluster.tolist(), served_by, strict=True):
        if _meets(NeedKey(names[cluster], *need.key), request):
            served.add(thought.keys[at])
    return served


def _meets(key: NeedKey, request: wire.InspectNeedsRequest) -> bool:
    return (
        request.cluster_id in ("", key.cluster)
        and key.fingerprint.startswith(request.profile_fingerprint)
        and request.group in ("", key.group)
    )


def _view(thought: CycleResult, told: Explanation) -> wire.NeedView:
    need, key = thought.demand.needs[told.need], thought.keys[told.need]
    ordered = [counted.ordered for counted in told.counted]
    view = wire.NeedView(
        need=need_codec.need_to_wire(need),
        cluster_id=key.cluster,
        profile_fingerprint=key.fingerprint,
        served_priority=need.priority,
        satisfied=not told.deficit,
        residual_deficit=_amounts(told.deficit),
        claimed_machine_count=len(told.counted),
        bootstrap_count=ordered.count(ActionType.BOOTSTRAP),
        provision_count=ordered.count(ActionType.PROVISION),
        age_cycles_unmet=told.age_cycles,
        matching_supply=_supply(told.matching),
        usable_supply=_supply(told.usable),
        by_requirement=[
            wire.RequirementCount(requirement=text, machines=count)
            for text, count in told.by_requirement.items()
        ],
        free_count=told.free,
        lower_priority_count=told.lower_priority,
        counted=[_counted(thought, counted) for counted in told.counted],
        preemption=_preemption(told),
    )
    view.short_sizes.CopyFrom(need_codec.sizes_to_wire(told.short))
    view.impossible_sizes.CopyFrom(need_codec.sizes_to_wire(told.impossible))
    _tell_domains(view, need.profile.same_key, thought, told)
    if told.reason is not None:
        view.unmet_reason = wire.NeedView.UnmetReason.Value(told.reason.name)
        view.unmet_reason_text = told.message
    return view


def _tell_domains(
    view: wire.NeedView, same_key: str | None, thought: CycleResult, told: Explanation
) -> None:
    if same_key is None:
        return
    fleet = thought.fleet
    labels = [fleet.flavours[fleet.flavour[c.row]].labels for c in told.counted]
    view.same_domain = labels[0].get(same_key, "") if labels else ""
    view.same_satisfiable = any(each.per_mille >= 1000 for each in told.domains)
    view.same_candidates.extend(
        wire.SameCandidate(
            domain=each.domain,
            coverage_per_mille=each.per_mille,
            satisfiable=each.per_mille >= 1000,
        )
        for each in told.domains
    )


def _preemption(told: Explanation) -> wire.PreemptionView:
    """Machines that other pods leave for this need, now or since earlier cycles."""
    taken = [
        counted
        for counted in told.counted
        if counted.state is _S.DRAINING or counted.ordered is ActionType.PREEMPT
    ]
    freed = resources.add(counted.holds for counted in taken)
    return wire.PreemptionView(victims_found=len(taken), capacity_freed=_amounts(freed))


def _counted(thought: CycleResult, counted: PlacedMachine) -> wire.CountedMachine:
    fleet = thought.fleet
    labels = fleet.flavours[fleet.flavour[counted.row]].labels
    return wire.CountedMachine(
        machine_id=thought.machine_id(counted.row),
        state=provider_pb2.MachineState.ValueType(counted.state),
        cost_per_hour=counted.cost,
        holds=_amounts(counted.holds),
        ordered="" if counted.ordered is None else counted.ordered.value,
        instance_type=labels.get(INSTANCE_TYPE_LABEL, ""),
        zone=labels.get(ZONE_LABEL, ""),
        pods=counted.pods,
    )


def _supply(by_state: Mapping[MachineState, int]) -> wire.MatchingSupply:
    return wire.MatchingSupply(
        idle=by_state.get(_S.IDLE, 0),
        configured=by_state.get(_S.CONFIGURED, 0) + by_state.get(_S.CONFIGURING, 0),
        speculative=by_state.get(_S.SPECULATIVE, 0),
    )


def _amounts(units: Mapping[str, int]) -> provider_pb2.Resources:
    shown = {name: amount for name, amount in units.items() if amount}
    return provider_pb2.Resources(resources=resources.texts(shown))
