"""What ceilings allow clusters, and what they hold back, for people who ask. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from bigfleet.api.v1alpha1 import shardread_pb2 as wire
from bigfleet.model.ceiling import HIGHEST_PRIORITY, Ceiling
from bigfleet.services.shard.decide.compute import CycleResult

# A person reads a few; the rest is counted.
MAX_WITHHELD = 100


def ceilings(
    result: CycleResult, request: wire.InspectCeilingsRequest
) -> Iterator[wire.CeilingView]:
    """Each cluster that has a ceiling, by name."""
    names = result.inputs.fleet.clusters
    for number in sorted(result.demand.ceilings, key=lambda number: names[number]):
        if request.cluster_id in ("", names[number]):
            yield _view(result, number, result.demand.ceilings[number])


def _view(result: CycleResult, number: int, ceiling: Ceiling) -> wire.CeilingView:
    view = wire.CeilingView(cluster_id=result.inputs.fleet.clusters[number])
    if ceiling.priority < HIGHEST_PRIORITY:
        view.priority_ceiling = ceiling.priority
        view.capped_needs = _lowered(result, number)
    if math.isfinite(ceiling.machines):
        view.machine_ceiling = int(ceiling.machines)
    if math.isfinite(ceiling.dollars_per_hour):
        view.dollars_per_hour_ceiling = ceiling.dollars_per_hour
    if (held := result.decision.held.get(number)) is not None:
        view.machines, view.dollars_per_hour = held.machines, held.micros / 1e6
    _add_withheld(result, number, view)
    return view


def _lowered(result: CycleResult, number: int) -> int:
    """How many of the cluster's needs claim more than counts."""
    pairs = zip(result.demand.needs, result.demand.cluster.tolist(), strict=True)
    return sum(1 for n, at in pairs if at == number and n.priority < n.profile.priority)


def _add_withheld(result: CycleResult, number: int, view: wire.CeilingView) -> None:
    """In the order in which the needs are served."""
    for short in result.decision.shortfalls:
        if short.need not in result.decision.at_ceiling:
            continue
        if result.demand.cluster[short.need] != number:
            continue
        view.waiting_pods += sum(size.pods for size in short.sizes)
        view.waiting_needs += 1
        if len(view.waiting) < MAX_WITHHELD:
            view.waiting.append(_waiting(result, short.need, short.pods))


def _waiting(result: CycleResult, index: int, pods: int) -> wire.WaitingNeed:
    key, need = result.keys[index], result.demand.needs[index]
    reference = wire.NeedReference(
        cluster_id=key.cluster,
        profile_fingerprint=key.fingerprint,
        group=key.group,
        priority=need.priority,
    )
    return wire.WaitingNeed(need=reference, pods=pods)
