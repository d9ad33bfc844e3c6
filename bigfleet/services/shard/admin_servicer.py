"""The gRPC face for what people order of a live shard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import grpc
import grpc.aio

from bigfleet.api.v1alpha1 import shardadmin_pb2 as wire
from bigfleet.api.v1alpha1.shardadmin_pb2_grpc import ShardAdminServicer as Servicer
from bigfleet.model.errors import BigFleetError, InvalidInput, Unavailable, UnknownObject
from bigfleet.services.shard.admin import ClusterRemover, OperatorMayBeAlive
from bigfleet.services.shard.sessions.registry import check_name

Context = grpc.aio.ServicerContext[Any, Any]

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
