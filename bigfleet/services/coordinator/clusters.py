"""Which shard serves a cluster. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import islice

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.model.errors import InvalidInput, UnknownObject
from bigfleet.services.coordinator.registry import Registry
from bigfleet.services.coordinator.rows import Cluster, RowChanges, put


def resolve(registry: Registry, cluster: str, asking: str, live: Iterable[str]) -> Cluster:
    """The cluster's row, stored or still to be stored; a cluster keeps its shard permanently.

    A new cluster goes to the shard with the most machines per cluster, to `asking` on a tie, and
    never to a shard that is being removed. With `asking` "" no shard is chosen. UnknownObject for
    a cluster without a shard, or an asking shard that has never reported.
    """
    row = registry.clusters.get(cluster)
    if row is not None:
        return row
    if not asking:
        raise UnknownObject(f"cluster {cluster} is not served by any shard yet")
    shard = registry.shards.get(asking)
    if shard is None:
        raise UnknownObject(f"shard {asking} has never reported; it must report first")
    staying = set(live) - {asking} if shard.leaving or shard.removed else {*live, asking}
    if not staying:
        raise InvalidInput("asking_shard_id", asking, "is being removed, and no other is live")
    return Cluster(cluster, _least_loaded(registry, staying, asking))


def _least_loaded(registry: Registry, shards: Iterable[str], asking: str) -> str:
    def load_key(shard: str) -> tuple[float, int, bool, str]:
        load = registry.load(shard)
        clusters_per_machine = (load.clusters + 1) / load.machines if load.machines else math.inf
        return clusters_per_machine, load.clusters, shard != asking, shard

    return min(shards, key=load_key)


def release_clusters(registry: Registry, shard: str, limit: int) -> RowChanges:
    """Unassign up to `limit` clusters of a leaving shard; the next request assigns them again."""
    held = (c for c in registry.clusters.values() if c.shard == shard)
    return {cluster.key: None for cluster in islice(held, limit)}


def removed_clusters(registry: Registry, report: wire.ShardReport) -> RowChanges:
    """Delete clusters of the reporting shard that are removed from the fleet, machines included.

    A cluster that another shard serves has been registered anew and stays.
    """
    ended = (each.cluster_id for each in report.removals if not each.machines_left)
    rows = (registry.clusters.get(cluster) for cluster in ended)
    return {row.key: None for row in rows if row is not None and row.shard == report.shard_id}


def assign(registry: Registry, row: Cluster) -> RowChanges:
    """Store the row; no change if it is stored already."""
    return {} if registry.clusters.get(row.id) == row else put(row)
