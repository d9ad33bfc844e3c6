"""gRPC service for inspecting a running shard; read-only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from bigfleet.api.grpc_status import abort
from bigfleet.api.v1alpha1 import shardread_pb2 as wire
from bigfleet.api.v1alpha1.shardread_pb2_grpc import ShardReadServicer as Servicer
from bigfleet.model.errors import UnknownObject
from bigfleet.ports.clock import to_nanos
from bigfleet.services.shard.decide.compute import CycleResult
from bigfleet.services.shard.decide.cycle import Cycle
from bigfleet.services.shard.decide.quotas import Quotas
from bigfleet.services.shard.inspect import ceiling_views, need_views
from bigfleet.services.shard.inspect.machine_views import MachineInspection
from bigfleet.services.shard.replay import checkpoint

_PART_BYTES = 2**20

Context = grpc.aio.ServicerContext[Any, Any]


class ShardReadServicer(Servicer):
    """`ShardRead` over the last cycle. UNAVAILABLE before the first one has ended."""

    def __init__(self, cycle: Cycle, machines: MachineInspection) -> None:
        self._cycle, self._machines = cycle, machines

    async def InspectNeeds(
        self, request: wire.InspectNeedsRequest, context: Context
    ) -> AsyncIterator[wire.InspectNeedsResponse]:
        """A header, then the selected needs, in the order in which they are served."""
        result = await self._latest(context)
        header = wire.InspectNeedsHeader(
            cycle=self._cycle.count,
            computed_at_unix_nanos=to_nanos(result.inputs.now_seconds),
            total_needs=len(result.keys),
            left_out=self._cycle.needs.left_out,
        )
        yield wire.InspectNeedsResponse(header=header)
        inventory = self._cycle.inventory
        quotas = Quotas(result.inputs.fleet, inventory.provider_names, self._cycle.slices())
        for view in need_views.needs(result, request, quotas, inventory.holds.silent):
            yield wire.InspectNeedsResponse(need=view)
            await asyncio.sleep(0)  # each view takes a millisecond; let sessions run in between

    async def InspectCeilings(
        self, request: wire.InspectCeilingsRequest, context: Context
    ) -> AsyncIterator[wire.CeilingView]:
        """The selected clusters that have a ceiling, sorted by name."""
        for view in ceiling_views.ceilings(await self._latest(context), request):
            yield view
            await asyncio.sleep(0)

    async def Checkpoint(
        self, request: wire.CheckpointRequest, context: Context
    ) -> AsyncIterator[wire.CheckpointPart]:
        """The last decision's inputs, encoded outside the event loop."""
        del request
        result, config = await self._latest(context), self._cycle.config
        saved = checkpoint.Checkpoint(config.shard_id, result.inputs, config.engine)
        content = await asyncio.to_thread(checkpoint.encode, saved)
        for start in range(0, len(content), _PART_BYTES):
            yield wire.CheckpointPart(content=content[start : start + _PART_BYTES])

    async def _latest(self, context: Context) -> CycleResult:
        """The last result; aborts before the first one."""
        result = self._cycle.latest
        if result is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, self._cycle.not_ready())
        return result

    async def InspectMachine(
        self, request: wire.InspectMachineRequest, context: Context
    ) -> wire.MachineView:
        """The machine in its present state."""
        try:
            return self._machines.view(request.machine_id, self._cycle.latest)
        except UnknownObject as error:
            await abort(context, error)
