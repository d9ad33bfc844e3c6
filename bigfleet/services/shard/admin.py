"""Removal of a cluster from the fleet: preview, safety check and start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
import numpy as np

from bigfleet.api.grpc_status import abort
from bigfleet.api.journal import JournalEvent
from bigfleet.api.v1alpha1 import shardadmin_pb2 as wire
from bigfleet.api.v1alpha1.shardadmin_pb2_grpc import ShardAdminServicer as Servicer
from bigfleet.model.errors import BigFleetError, Unavailable, UnknownObject
from bigfleet.model.machine import MachineState
from bigfleet.services.shard.decide.cycle import Cycle
from bigfleet.services.shard.sessions.registry import check_name
from bigfleet.services.shard.sessions.router import SessionRouter

Context = grpc.aio.ServicerContext[Any, Any]

_RESERVED = (MachineState.CREATING, MachineState.IDLE)


class OperatorMayBeAlive(BigFleetError):
    """The operator of a cluster that is to be removed may still be running."""


@dataclass(frozen=True)
class ClusterRemover:
    """`router` resolves a cluster's shard, None if this shard serves all; `is_served` returns
    whether this shard serves a cluster, without asking the coordinator.
    """

    cycle: Cycle
    router: SessionRouter | None
    is_served: Callable[[str], bool]

    async def order(
        self, cluster: str, *, force: bool, dry_run: bool
    ) -> wire.RemoveClusterResponse:
        """Start the removal unless `dry_run`; the response says what it affects.

        UnknownObject for an unknown cluster, OperatorMayBeAlive unless `force`d, Unavailable when
        the cluster's shard cannot be resolved, BigFleetError when the removal cannot be saved.
        """
        plan = self._plan(cluster)
        if plan.already_requested:
            return plan
        if not (any(n for _, n in plan.ListFields()) or await self._knows(cluster)):
            raise UnknownObject(
                f"cluster {cluster}: this shard does not serve it, and has neither needs nor "
                "machines of it; it may have been removed already"
            )
        if not force and (why := self._may_be_alive(cluster)):
            raise OperatorMayBeAlive(
                f"cluster {cluster}: {why}. Its {plan.configured_machines} configured machines "
                "would be drained without evicting their pods. Stop its operator and wait, or use "
                "--force"
            )
        if dry_run:
            return plan
        if self.router is not None and (owner := await self.router.redirect_for(cluster)):
            plan.served_by, plan.served_at = owner.shard_id, owner.address
            return plan
        self._begin(cluster)
        return plan

    def _plan(self, cluster: str) -> wire.RemoveClusterResponse:
        cycle = self.cycle
        result = cycle.latest
        if result is None:
            raise Unavailable(cycle.not_ready())
        states = Counter(view.state for view in cycle.inventory.bound_to(cluster))
        wants, fleet = result.inputs.wants, result.inputs.fleet
        reserved = wants.of_cluster(cluster) & np.isin(fleet.state, _RESERVED)
        at_work = states.pop(MachineState.CONFIGURED, 0)
        return wire.RemoveClusterResponse(
            configured_machines=at_work,
            transitioning_machines=states.total(),
            reserved_machines=int(reserved.sum()),
            needs=cycle.needs.count_of(cluster),
            already_requested=cluster in cycle.removals,
        )

    async def _knows(self, cluster: str) -> bool:
        if self.is_served(cluster) or self.cycle.sessions.of(cluster) is not None:
            return True
        return self.router is not None and await self.router.is_assigned(cluster)

    def _may_be_alive(self, cluster: str) -> str:
        cycle = self.cycle
        if cycle.sessions.of(cluster) is not None:
            return "its operator is connected"
        absence_seconds = cycle.config.cluster_absence_seconds
        away_seconds = cycle.suspensions.away_seconds(cluster, cycle.clock.monotonic_seconds())
        if away_seconds >= absence_seconds:
            return ""
        return (
            f"its operator has been disconnected for {away_seconds:.0f} s; it counts as absent "
            f"after {absence_seconds:.0f} s"
        )

    def _begin(self, cluster: str) -> None:
        """Record the removal; the following cycles carry it out."""
        cycle = self.cycle
        cycle.removals.begin(cluster)
        cycle.needs.forget(cluster)
        cycle.failures.forget(cluster)
        if (session := cycle.sessions.of(cluster)) is not None:
            session.end()
        cycle.journal.note(JournalEvent.CLUSTER_REMOVAL, cluster=cluster)
        cycle.woken.set()


class ShardAdminServicer(Servicer):
    """`ShardAdmin` over a ClusterRemover."""

    def __init__(self, remover: ClusterRemover) -> None:
        self._remover = remover

    async def RemoveCluster(
        self, request: wire.RemoveClusterRequest, context: Context
    ) -> wire.RemoveClusterResponse:
        """Remove a cluster, or preview its removal."""
        try:
            cluster = check_name("RemoveCluster: cluster_id", request.cluster_id)
            return await self._remover.order(cluster, force=request.force, dry_run=request.dry_run)
        except OperatorMayBeAlive as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except BigFleetError as error:
            await abort(context, error)
