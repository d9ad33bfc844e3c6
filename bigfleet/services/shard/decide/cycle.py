"""The decision loop: reconcile, decide, issue orders, publish."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from bigfleet.api.journal import JournalEvent
from bigfleet.api.v1alpha1.shard_pb2 import ShardMessage
from bigfleet.engine.cycle_memory import CycleMemory
from bigfleet.engine.snapshot import Demand, Flags, Fleet, Rows
from bigfleet.model.ceiling import Ceilings
from bigfleet.model.errors import Unavailable
from bigfleet.observe import metrics
from bigfleet.ports.clock import Clock
from bigfleet.ports.ownership import QuotaKey
from bigfleet.services.shard.config import ShardConfig
from bigfleet.services.shard.decide.compute import CycleResult, Decide
from bigfleet.services.shard.decide.cycle_inputs import CycleInputs
from bigfleet.services.shard.decide.cycle_report import (
    measured_compute,
    note_troubled_needs,
    observe_result,
    phase,
)
from bigfleet.services.shard.decide.demand_status import DemandStatuses
from bigfleet.services.shard.decide.hints import CapacityHints
from bigfleet.services.shard.decide.incoming import IncomingMachines
from bigfleet.services.shard.decide.order_issuer import OrderIssuer
from bigfleet.services.shard.decide.quotas import Quotas
from bigfleet.services.shard.decide.suspensions import Suspensions
from bigfleet.services.shard.demand.needs import NeedsTable
from bigfleet.services.shard.execute.actuation import Actuation
from bigfleet.services.shard.execute.evictions import Evictions
from bigfleet.services.shard.execute.providers import Providers
from bigfleet.services.shard.execute.removals import PendingRemovals
from bigfleet.services.shard.fleet.backoff import FailureBackOff
from bigfleet.services.shard.fleet.inventory import Inventory
from bigfleet.services.shard.records.journal import Journal
from bigfleet.services.shard.records.orders import Order, Orders
from bigfleet.services.shard.records.wants import Wants
from bigfleet.services.shard.sessions.disruption_costs import DisruptionCosts
from bigfleet.services.shard.sessions.registry import Sessions

# Runs work outside the event loop, so that it does not delay sessions.
Offload = Callable[[Callable[[], CycleResult]], Awaitable[CycleResult]]
# The shortest time between the starts of two cycles.
MIN_INTERVAL_SECONDS = 0.1
# One failure may be a peer's restart; this many in a row make the shard unready.
FAILURES_UNTIL_UNREADY = 3
# A cycle that takes longer makes the shard unready.
STALLED_SECONDS = 60.0
# Orders queued at once without delaying sessions.
_ORDERS_AT_ONCE = 500

_LOG = logging.getLogger(__name__)


def pause_seconds(took_seconds: float, cycle_seconds: float) -> float:
    """The pause after a cycle that took `took_seconds`, whatever happens meanwhile.

    At most half of the time is spent deciding: the rest is for sessions, which share the
    interpreter.
    """
    return max(took_seconds, min(MIN_INTERVAL_SECONDS, cycle_seconds))


@dataclass(kw_only=True, eq=False)
class Cycle:
    """Decides every `config.cycle_seconds`, and soon after `woken` is set. `slices` are this
    shard's quotas, `ceilings` the limits per cluster, `drains_for_others` orders that the
    coordinator wants.

    `latest` is the last result, None before the first; `count` is the number of cycles.
    """

    decide: Decide
    config: ShardConfig
    clock: Clock
    needs: NeedsTable
    inventory: Inventory
    orders: Orders
    providers: Providers
    actuation: Actuation
    order_issuer: OrderIssuer
    sessions: Sessions
    hints: CapacityHints
    journal: Journal
    evictions: Evictions
    disruptions: DisruptionCosts
    statuses: DemandStatuses
    incoming: IncomingMachines
    failures: FailureBackOff
    suspensions: Suspensions
    removals: PendingRemovals
    woken: asyncio.Event
    offload: Offload = asyncio.to_thread
    slices: Callable[[], Mapping[QuotaKey, int]] = dict
    ceilings: Callable[[], Ceilings] = Ceilings
    drains_for_others: Callable[[float], Sequence[Order]] = lambda _: ()
    latest: CycleResult | None = field(default=None, init=False)
    count: int = field(default=0, init=False)
    _started_seconds: float | None = field(default=None, init=False)
    _failures: int = field(default=0, init=False)
    _not_ready: str = field(default="the first cycle has not ended", init=False)

    def not_ready(self) -> str:
        """Why the shard is not ready, "" if it is."""
        return self.actuation.fenced or self._stalled() or self._not_ready

    def _stalled(self) -> str:
        if self._started_seconds is None:
            return ""
        elapsed_seconds = asyncio.get_running_loop().time() - self._started_seconds
        if elapsed_seconds < STALLED_SECONDS:
            return ""
        return f"the present cycle has not ended for {elapsed_seconds:.0f} s"

    async def run(self) -> None:
        """Run cycles until cancelled. A failed cycle is counted, and the next one starts afresh."""
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            self.woken.clear()
            await self.once()
            took_seconds = loop.time() - started
            await asyncio.sleep(pause_seconds(took_seconds, self.config.cycle_seconds))
            with suppress(TimeoutError):
                async with asyncio.timeout_at(started + self.config.cycle_seconds):
                    await self.woken.wait()

    async def once(self) -> None:
        """Run one cycle; it never raises."""
        self._started_seconds = asyncio.get_running_loop().time()
        try:
            with metrics.shard_cycle_seconds.time():
                await self._cycle()
        except Unavailable as error:
            self._failed("unavailable", str(error))
            _LOG.warning("cycle skipped: provider unavailable", extra={"error": str(error)})
        except Exception as error:  # noqa: BLE001  the next cycle starts afresh
            self._failed("error", str(error))
            _LOG.exception("cycle failed")
        else:
            self._failures, self._not_ready = 0, ""
        self._started_seconds = None
        self.journal.flush()

    def _failed(self, reason: str, error: str) -> None:
        metrics.shard_cycle_failures.labels(reason).inc()
        self._failures += 1
        if self._failures >= FAILURES_UNTIL_UNREADY:
            self._not_ready = f"the last {self._failures} cycles failed: {error}"

    async def _cycle(self) -> None:
        """Reconcile first: no decision is made on stale state."""
        with phase("reconcile"):
            await self.providers.refresh()
        async with self.inventory.lock:
            await self._decide_and_order()

    async def _decide_and_order(self) -> None:
        now_seconds = self.clock.monotonic_seconds()
        with phase("demand"):
            self._release_held(now_seconds)
            self.needs.save()
        with phase("snapshot"):
            inputs = self._gather_inputs(now_seconds)
        with phase("decide"):
            work = partial(measured_compute, inputs, self.decide, self.config.engine)
            self.latest = result = await self.offload(work)
            self.count += 1
        claims = result.decision.claimed_by, result.decision.headroom, result.demand, result.keys
        with phase("claims"):
            for _ in self.inventory.note_claims(*claims, now_seconds):
                await asyncio.sleep(0)
        with phase("enqueue"):
            orders = self.order_issuer.orders(result, self.suspensions.on_trial())
            for number, order in enumerate(orders, 1):
                self.order_issuer.issue(order)
                if number % _ORDERS_AT_ONCE == 0:
                    await asyncio.sleep(0)
        with phase("hints"):
            self._publish(result)
        with phase("inquiries"):
            self._inquire_disruptions(result, now_seconds)
        observe_result(result, self.needs, self.inventory, draining=len(self.evictions))
        note_troubled_needs(result, self.journal)

    def _gather_inputs(self, now_seconds: float) -> CycleInputs:
        """Machines, orders under way and demand at one moment."""
        fleet, wants = self._machines(now_seconds)
        last = self.latest
        return CycleInputs(
            fleet=fleet,
            machine_ids=self.inventory.ids,
            wants=wants,
            asked=self._demand(fleet.clusters, now_seconds),
            now_seconds=now_seconds,
            cycle_memory=last.decision.cycle_memory if last else CycleMemory(),
            hints_for=self.sessions.clusters() if self.hints.are_due(now_seconds) else (),
            report_shortfalls=self.statuses.are_due(now_seconds),
            quarantine=last.quarantine if last else {},
            unfolded=last.unfolded if last else frozenset(),
            unavailable=self.failures.offerings(now_seconds),
        )

    def _machines(self, now_seconds: float) -> tuple[Fleet, Wants]:
        self.evictions.drop(self.removals)
        self.evictions.settle(self.inventory)
        self.evictions.resume(self.sessions.open_sessions(), self.inventory)
        unattended = [
            *self.evictions.unattended(self.inventory, self.orders, now_seconds),
            *self.removals.drains(self.inventory, self.orders, now_seconds),
            *self.drains_for_others(now_seconds),
        ]
        for order in unattended:
            self.order_issuer.issue(order)
        slices, names = self.slices(), self.inventory.provider_names

        def unaffordable(fleet: Fleet) -> Flags:
            return Quotas(fleet, names, slices).exhausted()

        fleet, wants = self.inventory.snapshot(
            [*self._shown(unattended, now_seconds), *self.orders],
            unaffordable if slices else None,
            self.disruptions.known(now_seconds, self.inventory.joined_since),
        )
        self.removals.count(fleet, wants)
        fleet = self.needs.limits.apply_to(fleet, self.inventory)
        return self.failures.apply_to(fleet, self.inventory.places, now_seconds), wants

    def _shown(self, unattended: Iterable[Order], now_seconds: float) -> Iterator[Order]:
        """The orders as decisions see them: those of clusters out of reach are for no need. Nobody
        knows whether they are carried out, and a need that waited would get no other machine.
        """
        for order in unattended:
            away = self.suspensions.is_out_of_reach(order.cluster, now_seconds)
            yield replace(order, need_key=None) if away else order

    def _demand(self, clusters: Sequence[str], now_seconds: float) -> Demand:
        reachable = set(self.sessions.clusters()) - self.suspensions.silent()
        suspended = self.suspensions.clusters(clusters, now_seconds)
        metrics.shard_clusters_suspended.set(len(suspended))
        self.needs.bound(self.ceilings())
        return replace(
            self.needs.demand(),
            unreachable=frozenset(n for n, name in enumerate(clusters) if name not in reachable),
            suspended=frozenset(n for n, name in enumerate(clusters) if name in suspended),
        )

    def _release_held(self, now_seconds: float) -> None:
        for cluster in self.needs.release_held(now_seconds):
            metrics.shard_rollups.labels("released").inc()
            _LOG.info("held roll-up accepted after its hold", extra={"cluster": cluster})
            self.journal.note(JournalEvent.ROLLUP_RELEASED, cluster=cluster)

    def _publish(self, result: CycleResult) -> None:
        connected = dict.fromkeys(self.sessions.clusters())  # in a deterministic order
        for cluster, message in self.hints.changes(result.hints, connected):
            self.sessions.send(cluster, message, message.available_capacity.supersedes_key)
        for cluster, message in self.statuses.changes(result.statuses, connected):
            self.sessions.send(cluster, message, "demand-status")
        for cluster, message in self.incoming.changes(result, self.inventory, connected):
            self.sessions.send(cluster, message, message.node_state_update.supersedes_key)

    def _inquire_disruptions(self, result: CycleResult, now_seconds: float) -> None:
        """Ask the operators of clusters with possibly surplus machines for disruption costs."""
        names = result.fleet.clusters

        def ids(found: Mapping[int, Rows]) -> dict[str, list[str]]:
            return {
                names[cluster]: [result.machine_id(row) for row in rows.tolist()]
                for cluster, rows in found.items()
                if self.sessions.of(names[cluster]) is not None
            }

        candidates = ids(result.decision.disruption_cost_queries)
        surplus = ids(result.decision.surplus)
        fell = {names[cluster]: at for cluster, at in result.demand.fell_seconds.items()}
        growing = {names[cluster] for cluster in result.decision.growing}
        # An empty machine whose Node takes no pods goes also while demand grows.
        growing = {cluster for cluster in growing if not self.needs.limits.exist_in(cluster)}
        served_less = self.needs.limits.fell_seconds
        for cluster in fell.keys() | served_less.keys():
            fell[cluster] = max(fell.get(cluster, 0.0), served_less.get(cluster, 0.0))
        due = self.disruptions.inquiries(candidates, surplus, fell, growing, now_seconds)
        for cluster, inquiry in due:
            message = ShardMessage(disruption_inquiry=inquiry)
            self.sessions.send(cluster, message, "disruption-inquiry")
