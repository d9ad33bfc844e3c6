"""Views of needs: what the last cycle decided for each need, and why; built on request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

import numpy as np

from bigfleet.api import need_codec
from bigfleet.api.v1alpha1 import provider_pb2
from bigfleet.api.v1alpha1 import shardread_pb2 as wire
from bigfleet.engine.decision import ActionType
from bigfleet.engine.explain.explain import Explainer
from bigfleet.engine.explain.explanation import Explanation, PlacedMachine
from bigfleet.engine.snapshot import Flavour
from bigfleet.model import resources
from bigfleet.model.labels import INSTANCE_TYPE_LABEL, ZONE_LABEL
from bigfleet.model.machine import MachineState
from bigfleet.model.need import NeedKey
from bigfleet.services.shard.decide.compute import CycleResult
from bigfleet.services.shard.decide.quarantine import QUARANTINE_MESSAGE, QuarantinedNeed
from bigfleet.services.shard.decide.quotas import Quotas
from bigfleet.services.shard.fleet.backoff import Offering, descriptions
from bigfleet.services.shard.records.wants import KeysOf

_S = MachineState


def needs(
    result: CycleResult,
    request: wire.InspectNeedsRequest,
    quotas: Quotas | None = None,
    silent: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[wire.NeedView]:
    """The needs that `request` selects, in the order in which they are served; `quotas` are the
    shard's, and `silent` has the errors of providers that do not answer.
    """
    explainer = Explainer(result.fleet, result.demand, result.decision)
    wanted = _wanted(result, request)
    shown = 0
    for index, key in enumerate(result.keys):
        if key in wanted and not 0 < request.limit <= shown:
            shown += 1
            view = _view(result, explainer.need(index))
            accepted = explainer.accepts(index)
            flavours = [result.fleet.flavours[n] for n in np.flatnonzero(accepted).tolist()]
            view.unavailable_offerings.extend(_unavailable(result, flavours, key.cluster))
            view.unavailable_offerings.extend(_silent(silent, flavours))
            view.exhausted_quotas.extend(_exhausted(quotas, flavours) if quotas else ())
            yield view
    for key, quarantined in result.quarantine.items():
        if _meets(key, request) and not 0 < request.limit <= shown:
            shown += 1
            yield _of_quarantined(key, quarantined)


def _of_quarantined(key: NeedKey, quarantined: QuarantinedNeed) -> wire.NeedView:
    return wire.NeedView(
        need=need_codec.need_to_wire(quarantined.need),
        cluster_id=key.cluster,
        profile_fingerprint=key.fingerprint,
        served_priority=quarantined.need.priority,
        residual_deficit=_amounts(quarantined.need.aggregate),
        short_sizes=need_codec.sizes_to_wire(quarantined.need.sizes),
        unmet_reason_text=QUARANTINE_MESSAGE.format(error=quarantined.error),
    )


def _unavailable(result: CycleResult, flavours: Iterable[Flavour], cluster: str) -> Iterator[str]:
    """Descriptions of the offerings in backoff for the cluster, of those that the need accepts."""
    if not result.inputs.unavailable:
        return
    offerings = {Offering.of(flavour) for flavour in flavours}
    backed_off = {
        offering: failure
        for offering, failure in result.inputs.unavailable.items()
        if offering in offerings and failure.concerns(cluster)
    }
    yield from descriptions(backed_off, result.inputs.now_seconds)


def _silent(silent: Mapping[str, str], flavours: Iterable[Flavour]) -> Iterator[str]:
    """Descriptions of providers that do not answer, among those whose machines it accepts."""
    for provider in sorted({flavour.provider for flavour in flavours} & silent.keys()):
        yield f"all of {provider}: it does not answer ({silent[provider]})"


def _exhausted(quotas: Quotas, flavours: Iterable[Flavour]) -> Iterator[str]:
    """Descriptions of the quotas that are used up, for elastic machines that the need accepts."""
    keys = {quotas.key_of(flavour) for flavour in flavours}
    for use in quotas.uses(()):
        if use.held >= use.machines and use.key in keys:
            where = " ".join(filter(None, use.key))
            yield f"{where}, of which this shard may have {use.machines} machines"


def _wanted(result: CycleResult, request: wire.InspectNeedsRequest) -> set[NeedKey]:
    """Keys of the selected needs as served; a folded need is also found by its reported key."""
    served = {key for key in result.keys if _meets(key, request)}
    asked = KeysOf(result.inputs.asked, result.inputs.fleet.clusters)
    for key, at in zip(asked, result.served_by.tolist(), strict=True):
        if _meets(key, request):
            served.add(result.keys[at])
    return served


def _meets(key: NeedKey, request: wire.InspectNeedsRequest) -> bool:
    return (
        request.cluster_id in ("", key.cluster)
        and key.fingerprint.startswith(request.profile_fingerprint)
        and request.group in ("", key.group)
    )


def _view(result: CycleResult, explanation: Explanation) -> wire.NeedView:
    need, key = result.demand.needs[explanation.need], result.keys[explanation.need]
    ordered = [counted.ordered for counted in explanation.counted]
    view = wire.NeedView(
        need=need_codec.need_to_wire(need),
        cluster_id=key.cluster,
        profile_fingerprint=key.fingerprint,
        served_priority=need.priority,
        satisfied=not explanation.deficit,
        residual_deficit=_amounts(explanation.deficit),
        claimed_machine_count=len(explanation.counted),
        bootstrap_count=ordered.count(ActionType.BOOTSTRAP),
        provision_count=ordered.count(ActionType.PROVISION),
        age_cycles_unmet=explanation.age_cycles,
        matching_supply=_supply(explanation.matching),
        usable_supply=_supply(explanation.usable),
        by_requirement=[
            wire.RequirementCount(requirement=text, machines=count)
            for text, count in explanation.by_requirement.items()
        ],
        free_count=explanation.free,
        lower_priority_count=explanation.lower_priority,
        counted=[_counted(result, counted) for counted in explanation.counted],
        preemption=_preemption(explanation),
    )
    view.short_sizes.CopyFrom(need_codec.sizes_to_wire(explanation.short))
    view.impossible_sizes.CopyFrom(need_codec.sizes_to_wire(explanation.impossible))
    _add_domains(view, need.profile.same_key, result, explanation)
    if explanation.reason is not None:
        view.unmet_reason = wire.NeedView.UnmetReason.Value(explanation.reason.name)
        view.unmet_reason_text = explanation.message
    return view


def _add_domains(
    view: wire.NeedView, same_key: str | None, result: CycleResult, explanation: Explanation
) -> None:
    if same_key is None:
        return
    fleet = result.fleet
    labels = [fleet.flavours[fleet.flavour[c.row]].labels for c in explanation.counted]
    view.same_domain = labels[0].get(same_key, "") if labels else ""
    view.same_satisfiable = any(each.per_mille >= 1000 for each in explanation.domains)
    view.same_candidates.extend(
        wire.SameCandidate(
            domain=each.domain,
            coverage_per_mille=each.per_mille,
            satisfiable=each.per_mille >= 1000,
        )
        for each in explanation.domains
    )


def _preemption(explanation: Explanation) -> wire.PreemptionView:
    """Machines that are preempted for this need, in this cycle or earlier ones."""
    taken = [
        counted
        for counted in explanation.counted
        if counted.state is _S.DRAINING or counted.ordered is ActionType.PREEMPT
    ]
    freed = resources.add(counted.holds for counted in taken)
    return wire.PreemptionView(victims_found=len(taken), capacity_freed=_amounts(freed))


def _counted(result: CycleResult, counted: PlacedMachine) -> wire.CountedMachine:
    fleet = result.fleet
    labels = fleet.flavours[fleet.flavour[counted.row]].labels
    return wire.CountedMachine(
        machine_id=result.machine_id(counted.row),
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
