"""Demand: does the shard serve what the cluster's CapacityRequests ask for? Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from bigfleet.audit.compare.fleet_index import FleetIndex
from bigfleet.audit.differences import Difference, Kind, difference
from bigfleet.audit.observations import ClusterView, SeenRequest
from bigfleet.controllers.operator.available_capacity import availability_name
from bigfleet.controllers.operator.need_builder import GANG_TIMEOUT_SECONDS
from bigfleet.services.shard.decide.hints import hint_key

#: A need within its cluster: (profile fingerprint, group).
NeedName = tuple[str, str]
# Sent with the next roll-up and decided in the next cycle, each at most ten seconds later.
_GANG_ARRIVES_SECONDS = GANG_TIMEOUT_SECONDS + 20.0


def differences(index: FleetIndex) -> Iterator[Difference]:
    """Differences in the demand of each observed cluster, and objects without a reason."""
    for name, cluster in index.seen.clusters.items():
        shard = index.shard_of_cluster(name)
        if shard is not None and name in shard.reported:
            pods = index.pods.get((shard.id, name), {})
            yield from _needs(name, cluster, shard.id, pods, index.seen.at)
            yield from _hints(name, cluster, shard.id, pods)
        for request in cluster.requests:
            if request.pod and request.pod not in cluster.pods:
                yield difference(
                    Kind.REQUEST_WITHOUT_POD,
                    f"CapacityRequest {request.name} of cluster {name}",
                    request.created,
                    cluster=f"its Pod {request.pod} is gone or has finished",
                )


def _needs(
    name: str, cluster: ClusterView, shard: str, pods: Mapping[NeedName, int], now: float
) -> Iterator[Difference]:
    """By need, the requests and the pods that the shard counts. Amounts are not compared: sizes of
    one need are merged, and rounded up.
    """
    requests: defaultdict[NeedName, list[SeenRequest]] = defaultdict(list)
    for request in cluster.requests:
        if request.need is not None:
            requests[request.need].append(request)
    for need in {*requests, *pods}:
        asked, served = requests.get(need, []), pods.get(need, 0)
        if len(asked) != served and not _is_arriving(asked, now):
            yield difference(
                Kind.NEEDS_DIFFER,
                f"need {_need_name(name, need)}",
                cluster=f"{len(asked):,} CapacityRequests",
                shard=f"{shard}: {served:,} pods",
            )


def _is_arriving(asked: Sequence[SeenRequest], now: float) -> bool:
    """Whether they are a young gang, which is reported once it is complete."""
    members = max((request.members for request in asked), default=0)
    newest = max((request.created for request in asked), default=0.0)
    return len(asked) < members and now - newest < _GANG_ARRIVES_SECONDS


def _need_name(cluster: str, need: NeedName) -> str:
    """As `bigfleet why --need` takes it."""
    return "/".join(filter(None, (cluster, *need)))


def _hints(
    name: str, cluster: ClusterView, shard: str, pods: Mapping[NeedName, int]
) -> Iterator[Difference]:
    wanted = {availability_name(hint_key(fingerprint)) for fingerprint, _ in pods}
    for hint in sorted(set(cluster.available) - wanted):
        yield difference(
            Kind.AVAILABLE_CAPACITY_LEFT_BEHIND,
            f"AvailableCapacity {hint} of cluster {name}",
            cluster.available[hint],
            shard=f"{shard}: the cluster has no such need",
        )
