"""Views of ceilings: each cluster's limits, and the needs that wait because of them. Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from bigfleet.api.v1alpha1 import shardread_pb2 as wire
from bigfleet.engine.decision import Shortfall
from bigfleet.model.ceiling import HIGHEST_PRIORITY, Ceiling
from bigfleet.services.shard.decide.compute import CycleResult

# Waiting needs listed per cluster; the rest is only counted.
MAX_WITHHELD = 100


def ceilings(
    result: CycleResult, request: wire.InspectCeilingsRequest
) -> Iterator[wire.CeilingView]:
    """The selected clusters that have a ceiling, sorted by name."""
    names = result.inputs.fleet.clusters
    capped, withheld = _capped_needs(result), _withheld(result)
    for number in sorted(result.demand.ceilings, key=lambda number: names[number]):
        if request.cluster_id in ("", names[number]):
            view = _view(result, number, result.demand.ceilings[number], capped[number])
            _add_withheld(result, view, withheld.get(number, ()))
            yield view


def _capped_needs(result: CycleResult) -> Counter[int]:
    """By cluster number, how many needs are served below their own priority."""
    pairs = zip(result.demand.needs, result.demand.cluster.tolist(), strict=True)
    return Counter(cluster for need, cluster in pairs if need.priority < need.profile.priority)


def _withheld(result: CycleResult) -> dict[int, list[Shortfall]]:
    """By cluster number, the shortfalls at a ceiling, in the order in which needs are served."""
    found: defaultdict[int, list[Shortfall]] = defaultdict(list)
    for short in result.decision.shortfalls:
        if short.need in result.decision.at_ceiling:
            found[int(result.demand.cluster[short.need])].append(short)
    return found


def _view(result: CycleResult, number: int, ceiling: Ceiling, capped: int) -> wire.CeilingView:
    view = wire.CeilingView(cluster_id=result.inputs.fleet.clusters[number])
    if ceiling.priority < HIGHEST_PRIORITY:
        view.priority_ceiling, view.capped_needs = ceiling.priority, capped
    if math.isfinite(ceiling.machines):
        view.machine_ceiling = int(ceiling.machines)
    if math.isfinite(ceiling.dollars_per_hour):
        view.dollars_per_hour_ceiling = ceiling.dollars_per_hour
    if (held := result.decision.held.get(number)) is not None:
        view.machines, view.dollars_per_hour = held.machines, held.micros / 1e6
    return view


def _add_withheld(
    result: CycleResult, view: wire.CeilingView, withheld: Sequence[Shortfall]
) -> None:
    view.waiting_needs = len(withheld)
    view.waiting_pods = sum(size.pods for short in withheld for size in short.sizes)
    view.waiting.extend(_waiting(result, each.need, each.pods) for each in withheld[:MAX_WITHHELD])


def _waiting(result: CycleResult, index: int, pods: int) -> wire.WaitingNeed:
    key, need = result.keys[index], result.demand.needs[index]
    reference = wire.NeedReference(
        cluster_id=key.cluster,
        profile_fingerprint=key.fingerprint,
        group=key.group,
        priority=need.priority,
    )
    return wire.WaitingNeed(need=reference, pods=pods)
