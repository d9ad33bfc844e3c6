"""Takes orders, and brings each machine to the end of its operation, one step after the other."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from bigfleet.kube.watch import Changed as MachineChanged
from bigfleet.kube.watch import Listed, Watch
from bigfleet.model.errors import (
    Fenced,
    IllegalTransition,
    InvalidInput,
    Unavailable,
    UnknownObject,
)
from bigfleet.model.machine import TRANSITIONAL, MachineEvent, MachineState
from bigfleet.observe.metrics import (
    internal_errors,
    provider_machines,
    provider_orders_fenced,
    provider_transitions,
)
from bigfleet.ports.clock import Clock
from bigfleet.ports.host import HostFailure
from bigfleet.ports.provider import Fence
from bigfleet.services.provider import fencing, lifecycle
from bigfleet.services.provider.capi.catalog import Catalog, ClusterEntry, Offering
from bigfleet.services.provider.capi.management import ManagementCluster
from bigfleet.services.provider.capi.objects import PROVIDER_LABEL, MachineView
from bigfleet.services.provider.capi.records import Changed, Records
from bigfleet.services.provider.capi.steps import Act, Limits, Step, failed, next_step
from bigfleet.services.provider.lifecycle import Order, Record

_LOG = logging.getLogger(__name__)
# What did not succeed is tried again after so long; a Machine that is being deleted reports itself.
_RETRY_SECONDS = 2.0
# A burst of orders must not overload the management cluster.
_MAX_CONCURRENT_ACTS = 32
_ATTEMPTS = 3
_UNFINISHED = TRANSITIONAL | {MachineState.FAILED}


class MachineController:
    """The machines of one provider. `failure` gets an exception on a fatal error."""

    def __init__(
        self,
        records: Records,
        cluster: ManagementCluster,
        catalog: Catalog,
        provider_name: str,
        repair_seconds: float,
        clock: Clock,
    ) -> None:
        self.records = records
        self._cluster, self._catalog, self._clock = cluster, catalog, clock
        self._repair_seconds = repair_seconds
        selector = {"labelSelector": f"{PROVIDER_LABEL}={provider_name}"}
        self._watch = Watch(cluster.client, cluster.machines, MachineView, selector)
        self._views: dict[str, MachineView] = {}
        self._listed = asyncio.Event()
        self._locks: dict[str, asyncio.Lock] = {}
        self._acting = asyncio.Semaphore(_MAX_CONCURRENT_ACTS)
        self._work: dict[str, asyncio.Task[None]] = {}
        self._wakes: dict[str, asyncio.Event] = {}
        self._trouble: dict[str, str] = {}
        self._state_counts = Counter(record.machine.state for record in records)
        self._following: asyncio.Task[None] | None = None
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for state in MachineState:
            provider_machines.labels(state.name).set(self._state_counts[state])

    @property
    def not_ready(self) -> str:
        """Why it does not work on machines; "" when it does."""
        if self._listed.is_set():
            return ""
        return f"cannot watch Machines: {self._watch.stats.last_error or 'not listed yet'}"

    def start(self) -> None:
        """Watch Machines, and resume whatever is under way."""
        self._following = asyncio.create_task(self._follow(), name="watch of Machines")
        self._following.add_done_callback(self._ended)

    async def close(self) -> None:
        """Cancel all tasks; operations under way stay so in the management cluster."""
        tasks = [*self._work.values(), *([self._following] if self._following else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def submit(
        self, machine_id: str, fence: Fence, read_order: Callable[[], Order]
    ) -> Record:
        """Start the order that `read_order` returns; the machine's record, also for a repetition.

        UnknownObject, Fenced, InvalidInput and IllegalTransition, in this order of precedence; the
        fencing token advances even with the latter two. Unavailable if the management cluster does
        not answer, or if others write the record all the time.
        """
        self.records.get(machine_id)
        async with self._lock(machine_id):
            for _ in range(_ATTEMPTS):
                try:
                    await self.records.confirm(machine_id)
                    return await self._accept(machine_id, fence, read_order)
                except Changed:
                    self._wake(machine_id)  # it may be under way, as an earlier call has left it
                except (Unavailable, asyncio.CancelledError):
                    self._wake(machine_id)  # the order may have been saved all the same
                    raise
        raise Unavailable(f"the record of machine {machine_id} is being changed by somebody else")

    async def _accept(
        self, machine_id: str, fence: Fence, read_order: Callable[[], Order]
    ) -> Record:
        before = self.records.get(machine_id)
        self._check_fence(fence, machine_id)
        try:
            order = read_order()
            after = lifecycle.accept(before, order, self._clock.unix_seconds(), 0.0)
            if after is not before and order.event is MachineEvent.CONFIGURE:
                await self._prepare(after)
        except (InvalidInput, IllegalTransition):
            await self.records.save(before, fence)
            raise
        if after is before:
            return await self.records.save(before, fence)
        after = await self._save(before, replace(after, bootstrap_blob=b""), order.event, fence)
        self._wake(machine_id)
        return after

    async def _prepare(self, record: Record) -> None:
        """Bootstrap data must be durable before the order is answered: its blob comes only once."""
        machine = record.machine
        if machine.id in self._views:
            hint = "a Machine of its name exists, of which there is no record; delete it first"
            state, event = MachineState.IDLE.name, MachineEvent.CONFIGURE.value
            raise IllegalTransition(f"machine {machine.id}", state, event, hint)
        await self._cluster.prepare(record, self._entry(machine.cluster), record.bootstrap_blob)

    def _entry(self, cluster: str) -> ClusterEntry:
        try:
            return self._catalog.clusters[cluster]
        except KeyError:
            hint = f"is not one of the offerings' clusters: {', '.join(self._catalog.clusters)}"
            raise InvalidInput("cluster_id", cluster, hint) from None

    def _check_fence(self, fence: Fence, machine_id: str) -> None:
        try:
            newest = self.records.fencing_token(fence.shard_id, machine_id)
            fencing.check(fence, machine_id, newest, self.records.claimed_epoch(fence.shard_id))
        except Fenced as error:
            provider_orders_fenced.inc()
            _LOG.critical("incident: order from a replaced shard", extra={"why": str(error)})
            raise

    def _lock(self, machine_id: str) -> asyncio.Lock:
        return self._locks.setdefault(machine_id, asyncio.Lock())

    async def _follow(self) -> None:
        async for change in self._watch.follow():
            match change:
                case Listed(items):
                    self._views = {view.metadata.name: view for view in items}
                    self._listed.set()
                    for record in list(self.records):
                        if record.machine.state in (*_UNFINISHED, MachineState.CONFIGURED):
                            self._wake(record.machine.id)
                case MachineChanged(view, deleted):
                    if deleted:
                        self._views.pop(view.metadata.name, None)
                    else:
                        self._views[view.metadata.name] = view
                    self._wake(view.metadata.name)

    def _wake(self, machine_id: str) -> None:
        """Look at the machine again, now."""
        self._wakes.setdefault(machine_id, asyncio.Event()).set()
        if machine_id not in self._work and self._listed.is_set():
            task = asyncio.create_task(self._look_after(machine_id), name=f"machine {machine_id}")
            self._work[machine_id] = task
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) and not self.failure.done():
            self.failure.set_exception(error)

    async def _look_after(self, machine_id: str) -> None:
        """Take the machine's steps until there is none left."""
        wake = self._wakes[machine_id]
        try:
            while wake.is_set():
                wake.clear()
                until = await self._step(machine_id)
                if until is not None:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(until - self._clock.unix_seconds()):
                            await wake.wait()
                    wake.set()
        finally:
            del self._work[machine_id]

    async def _step(self, machine_id: str) -> float | None:
        """Take the next step; when to look again at the latest, None: when something changes."""
        offering = self._catalog.offering_of(machine_id)
        if offering is None:
            return None  # the Machine of something that was offered once
        now, record = self._clock.unix_seconds(), None
        try:
            async with self._lock(machine_id):
                await self.records.confirm(machine_id)
                record = self.records.get(machine_id)
            limits = Limits(offering, self._repair_seconds, self._trouble.get(machine_id, ""))
            step = next_step(record, self._views.get(machine_id), now, limits)
            async with self._acting:
                return await self._act(record, step, offering)
        except UnknownObject:
            return None  # beyond the number that is offered now
        except (HostFailure, Unavailable, Changed) as error:
            self._say(machine_id, str(error))
            hopeless = isinstance(error, HostFailure)
            if hopeless and record and record.machine.state is MachineState.CONFIGURING:
                return await self._fail(record, str(error))
        except Exception as error:  # noqa: BLE001 - a defect must not affect other machines
            internal_errors.inc()
            _LOG.exception("internal error on machine %s; please report it", machine_id)
            self._say(machine_id, repr(error))
        return now + _RETRY_SECONDS

    def _say(self, machine_id: str, trouble: str) -> None:
        """Log what keeps a machine from its next step, once."""
        if self._trouble.get(machine_id) != trouble:
            _LOG.warning("%s", trouble, extra={"machine": machine_id})
        self._trouble[machine_id] = trouble

    async def _act(self, record: Record, step: Step, offering: Offering) -> float | None:
        machine = record.machine
        entry = self._catalog.clusters.get(machine.cluster)
        if step.act is Act.CREATE:
            if entry is None:
                raise HostFailure(f"cluster {machine.cluster} is no longer in the offerings")
            await self._cluster.create(record, offering, entry)
        elif step.act is Act.REMOVE:
            grace = record.grace_ends_unix_seconds - self._clock.unix_seconds()
            if left := await self._cluster.remove(record, offering, entry, grace):
                raise Unavailable(left)
        self._trouble.pop(machine.id, None)
        if step.end is None or step.event is None:
            return step.until
        await self._end(record, step.end, step.event)
        return self._clock.unix_seconds()

    async def _fail(self, record: Record, why: str) -> float:
        now = self._clock.unix_seconds()
        try:
            await self._end(record, failed(record, why, now), MachineEvent.FAIL)
        except (Unavailable, Changed) as error:
            self._say(record.machine.id, str(error))
            return now + _RETRY_SECONDS
        return now

    async def _end(self, record: Record, end: Record, event: MachineEvent) -> None:
        """Save the end of an operation, unless an order has begun another one."""
        async with self._lock(record.machine.id):
            if self.records.get(record.machine.id) is record:
                await self._save(record, end, event)

    async def _save(
        self, before: Record, after: Record, event: MachineEvent, fence: Fence | None = None
    ) -> Record:
        after = await self.records.save(after, fence)
        for state, change in ((before.machine.state, -1), (after.machine.state, 1)):
            self._state_counts[state] += change
            provider_machines.labels(state.name).set(self._state_counts[state])
        provider_transitions.labels(event.name.lower()).inc()
        machine = after.machine
        story = {"machine": machine.id, "operation": after.operation_id}
        story |= {"state": machine.state.name, "cluster": machine.cluster}
        _LOG.info("%s", machine.last_error or "transition", extra=story)
        return after
