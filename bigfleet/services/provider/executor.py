"""Executes operations: one task for each operation under way; the host decides its outcome.

State is written to the store before it takes effect, so that a provider that was killed resumes
every operation where it stopped.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from bigfleet.model.errors import Fenced, IllegalTransition, InvalidInput, Unavailable
from bigfleet.model.machine import TRANSITIONAL, Machine, MachineEvent, MachineState
from bigfleet.observe.metrics import (
    internal_errors,
    provider_interruptions,
    provider_machines,
    provider_orders_fenced,
    provider_transitions,
)
from bigfleet.ports.clock import Clock
from bigfleet.ports.host import Boot, Host, HostFailure
from bigfleet.ports.provider import Fence
from bigfleet.services.provider import fencing, lifecycle
from bigfleet.services.provider.config import ProviderConfig
from bigfleet.services.provider.lifecycle import Order, Record
from bigfleet.services.provider.market_follower import MarketFollower
from bigfleet.services.provider.spot_market import SPOT_INTERRUPTED, seconds_until_interruption
from bigfleet.services.provider.store import Store

_LOG = logging.getLogger(__name__)
# The Node of a failed machine is removed in any case, so power-off is not awaited for longer.
_POWER_OFF_TIMEOUT_SECONDS = 10.0
# The operator removes a failed machine's Node at once, unless it is disconnected.
_NODE_REMOVAL_TIMEOUT_SECONDS = 60.0
# Until a full disk is freed, finished operations are kept in memory and retried.
_DISK_RETRY_INTERVAL_SECONDS = 1.0


class OperationExecutor:
    """Operations on the machines of one provider."""

    def __init__(self, config: ProviderConfig, store: Store, host: Host, clock: Clock) -> None:
        self.store = store
        self._config, self._host, self._clock = config, host, clock
        self._market = MarketFollower(config.market_file, store, clock)
        self._tasks: set[asyncio.Task[None]] = set()
        self._state_counts: Counter[MachineState] = Counter(r.machine.state for r in store)
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for state in MachineState:
            self._export(state)

    def submit(self, machine_id: str, fence: Fence, read_order: Callable[[], Order]) -> Record:
        """Start the order that `read_order` returns; the machine's record, also for a repetition.

        UnknownObject, Fenced, InvalidInput from `read_order` and IllegalTransition, in this order
        of precedence; the fencing token advances even with the latter two.
        """
        before = self.store.get(machine_id)
        self._check_fence(fence, machine_id)
        try:
            order = read_order()
            after = lifecycle.accept(
                before, order, self._clock.unix_seconds(), self._latency_seconds(before, order)
            )
        except (InvalidInput, IllegalTransition):
            self.store.save(None, fence, machine_id)
            raise
        if after is before:
            self.store.save(None, fence, machine_id)
            return before
        self._begin(before, after, order, fence)
        return self.store.get(machine_id)

    def _begin(self, before: Record, after: Record, order: Order, fence: Fence | None) -> None:
        self._change(before, after, order.event, fence)
        self._start(after)

    def _check_fence(self, fence: Fence, machine_id: str) -> None:
        try:
            newest = self.store.fencing_token(fence.shard_id, machine_id)
            claimed = self.store.claimed_epoch(fence.shard_id)
            fencing.check(fence, machine_id, newest, claimed)
        except Fenced as error:
            provider_orders_fenced.inc()
            _LOG.critical("incident: order from a replaced shard", extra={"why": str(error)})
            raise

    def _latency_seconds(self, record: Record, order: Order) -> float:
        latency = self._config.latencies.of(order.event)
        operation = record.operations_started + 1
        return latency.sample_seconds(self._config.seed, record.machine.id, operation)

    def resume(self) -> None:
        """Resume every operation that the store has as under way; call once, at the start."""
        for record in list(self.store):
            if record.machine.state in TRANSITIONAL:
                self._start(record)
            elif record.machine.state is MachineState.CONFIGURED:
                self._schedule_interruption(record)
            elif record.machine.state is MachineState.FAILED:
                self._schedule_repair(record)

    async def follow_market(self) -> None:
        """Bring all machines up to date with the market file, and keep them so.

        InvalidInput for a file that is not a market; one that becomes so later ends the provider.
        """
        await self._market.adopt(self._withdraw)
        self._spawn(self._market.keep(self._withdraw), "market")

    def _withdraw(self, record: Record) -> None:
        """Take back a machine whose kind is gone: from its cluster, or idle."""
        if record.machine.state is MachineState.CONFIGURED:
            self._spawn(self.interrupt(record), f"{record.operation_id} loss")
        elif record.machine.state is MachineState.IDLE:
            self._spawn(self._take_back(record.machine.id), f"{record.operation_id} loss")

    async def _take_back(self, machine_id: str) -> None:
        order = Order(MachineEvent.DELETE)
        while (now := self.store.get(machine_id)).machine.state is MachineState.IDLE:
            latency_seconds = self._latency_seconds(now, order)
            after = lifecycle.accept(now, order, self._clock.unix_seconds(), latency_seconds)
            try:
                self._begin(now, after, order, None)
            except Unavailable as error:
                await self._wait_for_disk(error)

    async def close(self) -> None:
        """Cancel all tasks; operations under way stay so in the store."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, record: Record) -> None:
        self._spawn(self._run(record), record.operation_id)

    def _schedule_interruption(self, record: Record) -> None:
        seconds = seconds_until_interruption(
            record.machine,
            self._config.seed,
            record.operations_started,
            self._config.spot_market_hours_per_second,
        )
        if math.isfinite(seconds):
            self._spawn(self._interrupt_after(record, seconds), f"{record.operation_id} loss")

    def _schedule_repair(self, record: Record) -> None:
        """Fixed machines only: a failed elastic machine is released, and another one purchased."""
        if not record.machine.capacity_type.elastic and math.isfinite(self._config.repair_seconds):
            self._spawn(self._repair(record.machine), f"{record.operation_id} repair")

    async def _repair(self, machine: Machine) -> None:
        """Make the machine idle once its Node is gone, or after a timeout."""
        await asyncio.sleep(self._config.repair_seconds)
        if machine.cluster:
            with suppress(HostFailure, TimeoutError):
                async with asyncio.timeout(_NODE_REMOVAL_TIMEOUT_SECONDS):
                    await self._host.wait_until_node_gone(machine)
        while (now := self.store.get(machine.id)).machine.state is MachineState.FAILED:
            try:
                self._change(now, lifecycle.recover(now), MachineEvent.RECOVER)
            except Unavailable as error:
                await self._wait_for_disk(error)

    async def _interrupt_after(self, record: Record, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.interrupt(record)

    async def interrupt(self, record: Record) -> None:
        """Interrupt a configured machine, unless it was configured again since `record`.

        The host is switched off first, as in reality: Node watchers may notice before the provider
        reports it.
        """
        if self._still_serves(record):
            await self._switch_off_failed(record.machine)
        while self._still_serves(record):
            now = self.store.get(record.machine.id)
            try:
                self._change(now, lifecycle.fail(now, SPOT_INTERRUPTED), MachineEvent.FAIL)
                provider_interruptions.inc()
            except Unavailable as error:
                await self._wait_for_disk(error)

    def _still_serves(self, record: Record) -> bool:
        """Whether it is still configured by the same operation."""
        now = self.store.get(record.machine.id)
        same_boot = now.operation_id == record.operation_id
        return same_boot and now.machine.state is MachineState.CONFIGURED

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) and not self.failure.done():
            self.failure.set_exception(error)

    async def _run(self, record: Record) -> None:
        after, event = await self._outcome(record)
        while self.store.get(record.machine.id).machine.state is record.machine.state:
            try:
                self._change(record, after, event)
            except Unavailable as error:
                await self._wait_for_disk(error)
        if self._market.is_gone(after.machine):
            self._withdraw(after)
        elif after.machine.state is MachineState.CONFIGURED:
            self._schedule_interruption(after)
        elif after.machine.state is MachineState.FAILED:
            self._schedule_repair(after)

    async def _outcome(self, record: Record) -> tuple[Record, MachineEvent]:
        """Run the operation under way to its end; the resulting record and event."""
        try:
            await self._perform(record)
        except HostFailure as failure:
            return lifecycle.fail(record, str(failure)), MachineEvent.FAIL
        except Exception as error:  # noqa: BLE001 - a defect must not affect other machines
            internal_errors.inc()
            _LOG.exception("internal error on machine %s; please report it", record.machine.id)
            return lifecycle.fail(record, repr(error)), MachineEvent.FAIL
        return lifecycle.finish(record), lifecycle.SUCCESS[record.machine.state]

    async def _wait_for_disk(self, error: Unavailable) -> None:
        """Until then orders are rejected, reads are served, and finished operations retried."""
        _LOG.error("%s; retrying every %g s", error, _DISK_RETRY_INTERVAL_SECONDS)
        await asyncio.sleep(_DISK_RETRY_INTERVAL_SECONDS)

    async def _perform(self, record: Record) -> None:
        await self._sleep_until(record.due_unix_seconds)
        if record.machine.state is MachineState.CREATING:
            self._market.check_capacity(record.machine)
            await self._host.acquire(record.machine)
        elif record.machine.state is MachineState.CONFIGURING:
            await self._boot(record)
        elif record.machine.state is MachineState.DRAINING:
            await self._drain(record)

    async def _boot(self, record: Record) -> None:
        boot = Boot(record.machine, record.operation_id, record.bootstrap_blob)
        try:
            await self._host.boot(boot, self._config.boot_timeout_seconds)
        except HostFailure:
            await self._switch_off_failed(record.machine)
            raise

    async def _switch_off_failed(self, machine: Machine) -> None:
        try:
            async with asyncio.timeout(_POWER_OFF_TIMEOUT_SECONDS):
                await self._host.power_off(machine)
        except (HostFailure, TimeoutError) as error:
            _LOG.warning("failed host may still be on: %s", error, extra={"machine": machine.id})

    async def _drain(self, record: Record) -> None:
        """Wait for the Node to be removed; when the grace period ends, switch the host off."""
        gone = asyncio.create_task(self._host.wait_until_node_gone(record.machine))
        grace = asyncio.create_task(self._sleep_until(record.grace_ends_unix_seconds))
        try:
            await asyncio.wait((gone, grace), return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                gone.result()
            else:
                await self._host.power_off(record.machine)
        finally:
            gone.cancel()
            grace.cancel()
            await asyncio.gather(gone, grace, return_exceptions=True)

    async def _sleep_until(self, unix_seconds: float) -> None:
        # Checked again after the sleep, because the wall clock may be set back.
        left_seconds = unix_seconds - self._clock.unix_seconds()
        if left_seconds > 0:
            await asyncio.sleep(left_seconds)
            await self._sleep_until(unix_seconds)

    def _change(
        self, before: Record, after: Record, event: MachineEvent, fence: Fence | None = None
    ) -> None:
        self.store.save(self._market.quoted(after), fence)
        old, new = before.machine.state, after.machine.state
        self._state_counts[old] -= 1
        self._state_counts[new] += 1
        self._export(old)
        self._export(new)
        provider_transitions.labels(event.name.lower()).inc()
        story = {"machine": after.machine.id, "operation": after.operation_id, "state": new.name}
        _LOG.info("%s", after.machine.last_error or "transition", extra=story)

    def _export(self, state: MachineState) -> None:
        provider_machines.labels(state.name).set(self._state_counts[state])
