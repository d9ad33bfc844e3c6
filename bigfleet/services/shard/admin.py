"""An order to take a cluster out of the fleet: what it would do, whether it may, and its start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
import numpy as np

from bigfleet.api.v1alpha1 import shardadmin_pb2 as wire
from bigfleet.api.v1alpha1.shardadmin_pb2_grpc import ShardAdminServicer as Servicer
from bigfleet.model.errors import BigFleetError, InvalidInput, Unavailable, UnknownObject
from bigfleet.model.machine import MachineState
from bigfleet.services.shard.decide.cycle import Cycle
from bigfleet.services.shard.sessions.registry import check_name
from bigfleet.services.shard.sessions.router import SessionRouter

Context = grpc.aio.ServicerContext[Any, Any]

_RESERVED = (MachineState.CREATING, MachineState.IDLE)


class OperatorMayBeAlive(BigFleetError):
    """The operator of a cluster that is to be removed may still be at work."""


@dataclass(frozen=True)
class ClusterRemover:
    """`router` knows whose a cluster is, None where all are this shard's; `is_served` says of a
    cluster that this shard has it without asking.
    """

    cycle: Cycle
    router: SessionRouter | None
    is_served: Callable[[str], bool]

    async def order(
        self, cluster: str, *, force: bool, dry_run: bool
    ) -> wire.RemoveClusterResponse:
        """What is done, or would be.

        UnknownObject for a cluster of which nothing is known, MayBeAlive unless `force`d,
        Unavailable when nobody can tell whose it is, BigFleetError when it cannot be kept.
        """
        plan = self._plan(cluster)
        if plan.already_requested:
            return plan
        if not (any(count for _, count in plan.ListFields()) or self._knows(cluster)):
            raise UnknownObject(
                f"cluster {cluster}: this shard has neither needs nor machines of it, and serves "
                "no such cluster; it may have been removed already"
            )
        if not force and (why := self._may_be_alive(cluster)):
            raise OperatorMayBeAlive(
                f"cluster {cluster}: {why}. Its {plan.configured_machines} machines at "
                "work would be drained "
                "without evicting their pods. Stop its operator and wait, or order it by force"
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
        keys = [number for number, key in enumerate(wants.keys) if key.cluster == cluster]
        reserved = np.isin(wants.numbers, keys) & np.isin(fleet.state, _RESERVED)
        at_work = states.pop(MachineState.CONFIGURED, 0)
        return wire.RemoveClusterResponse(
            configured_machines=at_work,
            transitioning_machines=states.total(),
            reserved_machines=int(reserved.sum()),
            needs=cycle.needs.count_of(cluster),
            already_requested=cluster in cycle.removals,
        )

    def _knows(self, cluster: str) -> bool:
        return self.is_served(cluster) or self.cycle.sessions.of(cluster) is not None

    def _may_be_alive(self, cluster: str) -> str:
        cycle = self.cycle
        if cycle.sessions.of(cluster) is not None:
            return "its operator is connected"
        absence_seconds = cycle.config.cluster_absence_seconds
        away_seconds = cycle.suspensions.away_seconds(cluster, cycle.clock.monotonic_seconds())
        if away_seconds >= absence_seconds:
            return ""
        return (
            f"for {away_seconds:.0f} s this shard has not heard its operator, and only after "
            f"{absence_seconds:.0f} s is it taken for absent"
        )

    def _begin(self, cluster: str) -> None:
        """From here on nothing is asked any more; each cycle takes the next step."""
        cycle = self.cycle
        cycle.removals.begin(cluster)
        cycle.needs.forget(cluster)
        cycle.failures.forget(cluster)
        if (session := cycle.sessions.of(cluster)) is not None:
            session.end()
        cycle.journal.note("cluster-removal", cluster=cluster)
        cycle.woken.set()


_CODES: Mapping[type[BigFleetError], grpc.StatusCode] = {
    InvalidInput: grpc.StatusCode.INVALID_ARGUMENT,
    OperatorMayBeAlive: grpc.StatusCode.FAILED_PRECONDITION,
    Unavailable: grpc.StatusCode.UNAVAILABLE,
    UnknownObject: grpc.StatusCode.NOT_FOUND,
}


class ShardAdminServicer(Servicer):
    """`ShardAdmin`: what cannot be done is answered with a sentence."""

    def __init__(self, remover: ClusterRemover) -> None:
        self._remover = remover

    async def RemoveCluster(
        self, request: wire.RemoveClusterRequest, context: Context
    ) -> wire.RemoveClusterResponse:
        """Take a cluster out, or say what that would do."""
        try:
            cluster = check_name("RemoveCluster: cluster_id", request.cluster_id)
            return await self._remover.order(cluster, force=request.force, dry_run=request.dry_run)
        except BigFleetError as error:
            code = _CODES.get(type(error), grpc.StatusCode.ABORTED)
            await context.abort(code, str(error))
