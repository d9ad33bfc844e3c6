"""The shard's heartbeat: look, decide, order, tell; again and again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from bigfleet.engine.decision import Action, ActionKind, Decision
from bigfleet.engine.normalise import normalise
from bigfleet.engine.snapshot import NONE, Demand, Fleet
from bigfleet.engine.snapshot import Settings as EngineSettings
from bigfleet.model.errors import Unavailable
from bigfleet.observe import metrics
from bigfleet.ports.clock import Clock
from bigfleet.services.shard.actuation import Actuation
from bigfleet.services.shard.assignment import NeedKey
from bigfleet.services.shard.execution import Outcome
from bigfleet.services.shard.hints import Hints
from bigfleet.services.shard.inventory import Inventory
from bigfleet.services.shard.journal import Journal
from bigfleet.services.shard.needs import NeedsTable
from bigfleet.services.shard.orders import Order, Orders
from bigfleet.services.shard.reconciler import Reconciler
from bigfleet.services.shard.sessions import Sessions
from bigfleet.services.shard.settings import Settings

Decide = Callable[[Fleet, Demand, EngineSettings, float], Decision]

# However many events wake the cycle, its starts are this far apart.
LEAST_APART_SECONDS = 0.1
# One failure can be a peer's restart; this many in a row make the shard unready.
FAILURES_UNTIL_UNREADY = 3
# A provider may take that long over a listing now and then, but not over every one.
STALLED_SECONDS = 60.0

_BY_OPERATOR = (ActionKind.BOOTSTRAP, ActionKind.RECLAIM)

_log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False)
class Cycle:
    """Decides anew every `settings.cycle_seconds`, and soon after `woken` is set."""

    decide: Decide
    settings: Settings
    clock: Clock
    needs: NeedsTable
    inventory: Inventory
    orders: Orders
    reconciler: Reconciler
    actuation: Actuation
    sessions: Sessions
    hints: Hints
    journal: Journal
    woken: asyncio.Event
    _started_seconds: float | None = field(default=None, init=False)
    _failures: int = field(default=0, init=False)
    _not_ready: str = field(default="the first cycle has not ended", init=False)

    def not_ready(self) -> str:
        """Why the shard does not do its work, "" while it does."""
        return self.actuation.fenced or self._stalled() or self._not_ready

    def _stalled(self) -> str:
        if self._started_seconds is None:
            return ""
        elapsed_seconds = asyncio.get_running_loop().time() - self._started_seconds
        if elapsed_seconds < STALLED_SECONDS:
            return ""
        return f"the present cycle has not ended for {elapsed_seconds:.0f} s"

    async def run(self) -> None:
        """Until cancelled. A cycle that fails is counted, and the next one begins afresh."""
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            self.woken.clear()
            await self.once()
            await asyncio.sleep(min(LEAST_APART_SECONDS, self.settings.cycle_seconds))
            with suppress(TimeoutError):
                async with asyncio.timeout_at(started + self.settings.cycle_seconds):
                    await self.woken.wait()

    async def once(self) -> None:
        """One cycle, from looking to telling; it never raises."""
        self._started_seconds = asyncio.get_running_loop().time()
        try:
            with metrics.shard_cycle_seconds.time():
                await self._cycle()
        except Unavailable as error:
            self._failed("unavailable", str(error))
            _log.warning("nothing decided: the provider is away", extra={"error": str(error)})
        except Exception as error:  # noqa: BLE001  the next cycle begins afresh
            self._failed("error", str(error))
            _log.exception("cycle failed")
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
        """Nothing is decided on a view that could not be refreshed."""
        with _phase("reconcile"):
            await self.reconciler.refresh()
        now_seconds = self.clock.unix_seconds()
        self._release_held(now_seconds)
        with _phase("snapshot"):
            fleet = self.inventory.snapshot(self.orders)
            asked = self.needs.demand()
            demand = normalise(fleet, asked)
            keys = _keys(fleet, demand)
            place = {key: index for index, key in enumerate(keys)}
            fleet = self.inventory.attributed(fleet, self.orders, lambda k: place.get(k, NONE))
        with _phase("decide"):
            decision = self.decide(fleet, demand, self.settings.engine, now_seconds)
        self.inventory.note_claims(decision.claimed_by, keys, now_seconds)
        with _phase("enqueue"):
            for action in decision.actions:
                self._enqueue(self._order(action, fleet, demand, now_seconds))
        with _phase("hints"):
            self._publish_hints(fleet, asked, now_seconds)
        self._measure(decision)

    def _release_held(self, now_seconds: float) -> None:
        for cluster in self.needs.release_held(now_seconds):
            metrics.shard_rollups.labels("released").inc()
            _log.info("held roll-up taken: nobody contradicted it", extra={"cluster": cluster})
            self.journal.note("rollup-released", cluster=cluster)

    def _order(self, action: Action, fleet: Fleet, demand: Demand, now_seconds: float) -> Order:
        need, cluster = None, int(fleet.cluster[action.row])
        if action.need != NONE:
            need, cluster = demand.needs[action.need], int(demand.cluster[action.need])
        return Order(
            kind=action.kind,
            machine_id=self.inventory.id(action.row),
            cluster="" if cluster == NONE else fleet.clusters[cluster],
            need=need,
            grace_seconds=action.grace_seconds,
            decided_seconds=now_seconds,
        )

    def _enqueue(self, order: Order) -> None:
        """An order that needs an absent operator would only take another's place in the queue."""
        if order.kind in _BY_OPERATOR and self.sessions.of(order.cluster) is None:
            outcome = Outcome.NO_SESSION.value
            metrics.shard_action_outcomes.labels(order.kind.value, outcome).inc()
        elif self.actuation.offer(order):
            self.journal.note(
                "decided",
                machine=order.machine_id,
                kind=order.kind.value,
                cluster=order.cluster,
                need=order.need.profile.fingerprint if order.need else None,
                group=order.need.group if order.need else None,
            )

    def _publish_hints(self, fleet: Fleet, demand: Demand, now_seconds: float) -> None:
        listening = self.sessions.clusters()
        for cluster, message in self.hints.due(fleet, demand, listening, now_seconds):
            self.sessions.tell(cluster, message, message.available_capacity.supersedes_key)

    def _measure(self, decision: Decision) -> None:
        metrics.shard_demand_needs.set(len(self.needs))
        metrics.shard_shortfalls.set(len(decision.shortfalls))
        metrics.shard_reclaims_capped.inc(decision.reclaims_capped)
        for state, count in self.inventory.count_by_state().items():
            metrics.shard_inventory.labels(state.name).set(count)


def _keys(fleet: Fleet, demand: Demand) -> list[NeedKey]:
    return [
        NeedKey(fleet.clusters[cluster], *need.key)
        for need, cluster in zip(demand.needs, demand.cluster.tolist(), strict=True)
    ]


@contextmanager
def _phase(name: str) -> Iterator[None]:
    with metrics.shard_cycle_phase_seconds.labels(name).time():
        yield
