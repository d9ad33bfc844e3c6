"""gRPC service of a provider: reads its records, passes orders on, maps errors to status codes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import grpc.aio

from bigfleet.api import machine_codec
from bigfleet.api.grpc_status import abort
from bigfleet.api.v1alpha1 import provider_pb2 as wire
from bigfleet.api.v1alpha1.provider_pb2_grpc import CapacityProviderServicer
from bigfleet.model.errors import BigFleetError
from bigfleet.ports.provider import Fence
from bigfleet.services.provider import requests
from bigfleet.services.provider.executor import OperationExecutor
from bigfleet.services.provider.lifecycle import Order, Record

Context = grpc.aio.ServicerContext[Any, Any]

# A long List is built in chunks of some 10 ms, so that orders are answered in between.
_CHUNK_RECORDS = 500


class RecordServicer(CapacityProviderServicer):
    """`CapacityProvider` over records; a subclass takes orders and claims."""

    def __init__(self, records: requests.Records, provider_name: str) -> None:
        self._records, self._provider_name = records, provider_name

    async def take(self, machine_id: str, fence: Fence, read_order: Callable[[], Order]) -> Record:
        """The machine's record once the order is durable: see `OperationExecutor.submit`."""
        raise NotImplementedError

    async def claim(self, shard_id: str, at_least: int) -> int:
        """A new, durable epoch for this shard."""
        raise NotImplementedError

    async def Create(self, request: wire.CreateRequest, context: Context) -> wire.TransitionAck:
        """SPECULATIVE -> CREATING -> IDLE."""
        return await self._submit(request, context)

    async def Configure(
        self, request: wire.ConfigureRequest, context: Context
    ) -> wire.TransitionAck:
        """IDLE -> CONFIGURING -> CONFIGURED."""
        return await self._submit(request, context)

    async def Drain(self, request: wire.DrainRequest, context: Context) -> wire.TransitionAck:
        """CONFIGURED -> DRAINING -> IDLE."""
        return await self._submit(request, context)

    async def Delete(self, request: wire.DeleteRequest, context: Context) -> wire.TransitionAck:
        """IDLE -> DELETING -> SPECULATIVE."""
        return await self._submit(request, context)

    async def ClaimEpoch(
        self, request: wire.ClaimEpochRequest, context: Context
    ) -> wire.ClaimEpochResponse:
        """Give an epoch to a shard that has lost its state directory."""
        try:
            epoch = await self.claim(*requests.epoch_claim_of(request))
        except BigFleetError as error:
            await abort(context, error)
        return wire.ClaimEpochResponse(shard_epoch=epoch)

    async def Get(self, request: wire.MachineRef, context: Context) -> wire.Machine:
        """One machine in its present state."""
        try:
            record = self._records.get(request.id)
        except BigFleetError as error:
            await abort(context, error)
        return machine_codec.machine_to_wire(record.machine, self._provider_name)

    async def List(self, request: wire.ListFilter, context: Context) -> wire.MachineList:
        """A page of all machines, of those in some states, or of those changed since a revision."""
        try:
            selection = requests.select(self._records, request)
        except BigFleetError as error:
            await abort(context, error)
        answer = wire.MachineList(
            revision=selection.revision,
            next_page_token=selection.next_page_token,
            provider=self._provider_name,
        )
        for start in range(0, len(selection.records), _CHUNK_RECORDS):
            answer.machines.extend(
                machine_codec.machine_to_wire(record.machine, self._provider_name)
                for record in selection.records[start : start + _CHUNK_RECORDS]
            )
            await asyncio.sleep(0)
        return answer

    async def _submit(self, request: requests.Mutation, context: Context) -> wire.TransitionAck:
        try:
            fence, read_order = requests.fence_of(request), partial(requests.order_of, request)
            record = await self.take(request.machine_id, fence, read_order)
        except BigFleetError as error:
            await abort(context, error)
        return wire.TransitionAck(
            operation_id=record.operation_id,
            machine=machine_codec.machine_to_wire(record.machine, self._provider_name),
        )


class ProviderServicer(RecordServicer):
    """`CapacityProvider` over one OperationExecutor."""

    def __init__(self, executor: OperationExecutor, provider_name: str) -> None:
        super().__init__(executor.store, provider_name)
        self._executor = executor

    async def take(self, machine_id: str, fence: Fence, read_order: Callable[[], Order]) -> Record:
        """See `OperationExecutor.submit`."""
        return self._executor.submit(machine_id, fence, read_order)

    async def claim(self, shard_id: str, at_least: int) -> int:
        """See `Store.claim_epoch`."""
        return self._executor.store.claim_epoch(shard_id, at_least)
