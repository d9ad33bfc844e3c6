"""Syncs the inventory from one provider and notifies affected clusters."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from bigfleet.api.journal import JournalEvent
from bigfleet.engine.decision import ActionType
from bigfleet.model.domain import is_name
from bigfleet.model.machine import (
    BOUND,
    TRANSITIONS,
    VALID_ID,
    Machine,
    MachineState,
    is_valid_id,
)
from bigfleet.observe import metrics
from bigfleet.ports.clock import Clock
from bigfleet.ports.provider import CapacityProvider, Listing
from bigfleet.services.shard.fleet.backoff import FailureBackOff
from bigfleet.services.shard.fleet.inventory import Inventory
from bigfleet.services.shard.records.journal import Journal
from bigfleet.services.shard.records.orders import Order, Orders
from bigfleet.services.shard.records.views import Transition
from bigfleet.services.shard.sessions import updates
from bigfleet.services.shard.sessions.registry import Sessions

# Incremental listings do not show deleted machines, so a full one is made at this interval.
FULL_LISTING_SECONDS = 300.0
RELIST_INTERVAL_SECONDS = 5.0  # while one is held
# Of at least so many machines, a listing that keeps less than this share is held for so long.
MIN_MACHINES, MIN_KEPT_FRACTION, HOLD_SECONDS = 10, 0.5, 30.0
# Records applied at once without delaying sessions.
_RECORDS_AT_ONCE = 2000
_SHOWN_CHARACTERS = 80
_MOVES = frozenset((before, after) for (before, _), after in TRANSITIONS.items())

_LOG = logging.getLogger(__name__)


class ListingGuard:
    """Holds a full listing that drops most machines until it is confirmed."""

    def __init__(self) -> None:
        self._since_seconds: float | None = None

    def reason_to_hold(self, known: int, kept: int, now_seconds: float) -> str:
        """Why a full listing with `kept` of the `known` machines is held, "" if it is accepted."""
        if known < MIN_MACHINES or kept >= MIN_KEPT_FRACTION * known:
            self._since_seconds = None
            return ""
        if self._since_seconds is None:
            self._since_seconds = now_seconds
        left_seconds = self._since_seconds + HOLD_SECONDS - now_seconds
        if left_seconds <= 0:
            self._since_seconds = None
            return ""
        return (
            f"it lacks {known - kept} of {known} machines; they are kept, and removed if every "
            f"listing of the next {left_seconds:.0f} s lacks them too"
        )


class Reconciler:
    """Keeps the inventory in sync with one `provider`, which it has under `key`.

    `refused` are ids of machines that this provider lists although another one has them.
    """

    def __init__(
        self,
        key: str,
        provider: CapacityProvider,
        inventory: Inventory,
        orders: Orders,
        sessions: Sessions,
        journal: Journal,
        clock: Clock,
        failures: FailureBackOff,
    ) -> None:
        self.refused: set[str] = set()
        self._key, self._provider, self._inventory = key, provider, inventory
        self._orders, self._sessions, self._journal = orders, sessions, journal
        self._clock, self._failures = clock, failures
        self._revision, self._full_listing_due_seconds = b"", 0.0
        self._configuring_since: dict[str, float] = {}
        self._guard = ListingGuard()

    async def refresh(self) -> None:
        """List changes, or everything when due. Unavailable when the provider does not answer.

        Pages are applied one by one. A machine may be on several, and the last one counts. Machines
        are dropped, and changes since the last revision are no longer asked for, only once all
        pages are read: a listing that is interrupted begins anew.
        """
        now_seconds = self._clock.monotonic_seconds()
        is_full = not self._revision or now_seconds >= self._full_listing_due_seconds
        number = self._orders.listing_asked()
        try:
            await self._read(is_full, number, now_seconds)
        finally:
            self._orders.listing_ended(number)

    async def _read(self, is_full: bool, number: int, now_seconds: float) -> None:
        refused, complete = set[str](), True
        if is_full:
            self._inventory.begin_full_listing(self._key)
        async with aclosing(self._pages(is_full)) as pages:
            async for page in pages:
                if is_name(page.provider_name):  # the coordinator would refuse the whole report
                    self._inventory.provider_names[self._key] = page.provider_name
                async with self._inventory.lock:
                    self._observe(self._inventory.recall(page.unchanged, now_seconds))
                    machines = self._own(await self._valid_records(page), refused)
                    self._inventory.ensure_rows(machines)
                    complete &= await self._take_over(machines, number)
                    rejected = filter(is_valid_id, page.rejected)
                    self._inventory.name([*page.unchanged, *(m.id for m in machines), *rejected])
        self.refused = refused if is_full else self.refused | refused
        if is_full:
            async with self._inventory.lock:
                self._end_full_listing(now_seconds)
        self._revision = page.revision if complete else self._revision

    def _end_full_listing(self, now_seconds: float) -> None:
        accepted = self._retain_named(now_seconds)
        pause_seconds = FULL_LISTING_SECONDS if accepted else RELIST_INTERVAL_SECONDS
        self._full_listing_due_seconds = now_seconds + pause_seconds
        if accepted:
            self._inventory.compact()

    def _pages(self, is_full: bool) -> AsyncGenerator[Listing, None]:
        if is_full:
            return self._provider.list(unchanged=self._unchanged)
        return self._provider.list(self._revision)

    def _unchanged(self, ids: Sequence[str], digests: Sequence[int]) -> list[str]:
        """The machines whose records need not be read again: nearly all of a full listing."""
        same = self._inventory.unchanged(ids, digests, self._key)
        return [machine_id for machine_id in same if not self._orders.concern(machine_id)]

    def request_full_listing(self) -> None:
        """Make the next refresh a full listing."""
        self._full_listing_due_seconds = 0.0

    def answered(self, order: Order, machine: Machine) -> None:
        """Apply the machine from the provider's answer to `order`, unless a listing was newer."""
        if self._inventory.state(machine.id) in order.starts_from:
            now_seconds = self._clock.monotonic_seconds()
            self._observe(self._inventory.apply([machine], now_seconds, self._key))

    def _own(self, machines: Sequence[Machine], refused: set[str]) -> Sequence[Machine]:
        """Those that no other provider has; adds the ids of the others to `refused`."""
        others = self._inventory.listed_by_others([m.id for m in machines], self._key)
        for machine_id in sorted(others - self.refused):
            has_it = self._inventory.provider_of(machine_id)
            self._reject(
                f"machine {machine_id} of provider {self._key} has the id of a machine of provider "
                f"{has_it}; nothing is ordered for either until one of them drops it"
            )
        refused |= others
        return [machine for machine in machines if machine.id not in others]

    async def _valid_records(self, listing: Listing) -> list[Machine]:
        for error in listing.rejected.values():
            self._reject(str(error))
        valid: dict[str, Machine] = {}
        for number, machine in enumerate(listing.machines, 1):
            if number % _RECORDS_AT_ONCE == 0:
                await asyncio.sleep(0)
            if not is_valid_id(machine.id):
                shown = repr(machine.id[:_SHOWN_CHARACTERS])
                self._reject(f"machine {shown}: its id is not {VALID_ID}")
            elif valid.setdefault(machine.id, machine) is not machine:
                self._reject(f"machine {machine.id} is listed twice; the first record is used")
        return list(valid.values())

    @staticmethod
    def _reject(why: str) -> None:
        metrics.shard_machines_rejected.inc()
        _LOG.warning("provider record rejected; keeping the last valid one", extra={"why": why})

    async def _take_over(self, machines: Sequence[Machine], number: int) -> bool:
        """Apply the records; False when one was stale: the next listing must include it again."""
        taken = 0
        for start in range(0, len(machines), _RECORDS_AT_ONCE):
            batch = machines[start : start + _RECORDS_AT_ONCE]
            fresh = [m for m in batch if not self._orders.is_stale(m.id, m.state, number)]
            now_seconds = self._clock.monotonic_seconds()
            self._observe(self._inventory.apply(fresh, now_seconds, self._key))
            taken += len(fresh)
            await asyncio.sleep(0)
        return taken == len(machines)

    def _retain_named(self, now_seconds: float) -> bool:
        """Drop machines that a full listing does not name; False when it is held."""
        known = self._inventory.count_of(self._key)
        kept = self._inventory.count_named(self._key)
        if why := self._guard.reason_to_hold(known, kept, now_seconds):
            metrics.shard_listings_suspect.inc()
            _LOG.warning("suspect full listing held", extra={"why": why})
            self._journal.note(JournalEvent.LISTING_SUSPECT, note=why)
            return False
        self._observe(self._inventory.retain_named(self._key))
        return True

    def _observe(self, transitions: Sequence[Transition]) -> None:
        for transition in transitions:
            if transition.owned:
                self._follow(transition)
            if not any(map(self._sessions.of, (transition.cluster, transition.former_cluster))):
                continue  # as after a restart: a session's start replays the states
            for cluster, message in updates.of_transition(self._inventory, transition):
                key = message.node_state_update.supersedes_key
                self._sessions.send(cluster, message, key)

    def _follow(self, transition: Transition) -> None:
        """Handle a transition of this shard's machine; orders for others' are not known here."""
        order = self._orders.of(transition.machine_id)
        self._note_failures(transition)
        adopted = not _expected(transition, order)
        if transition.before is not None or transition.cluster:
            self._journal_state(transition, order, adopted)
        if adopted:
            self._report_adoption(transition)
        self._time_configuring(transition, order)
        self._orders.overtake(transition.machine_id)

    def _note_failures(self, transition: Transition) -> None:
        is_new = transition.before is None
        view = None if is_new else self._inventory.view(transition.machine_id)
        if view is not None:
            now_seconds = self._clock.monotonic_seconds()
            self._failures.follow(transition, view.machine_class.flavour, now_seconds)

    def _journal_state(self, transition: Transition, order: Order | None, adopted: bool) -> None:
        view = self._inventory.view(transition.machine_id)
        need = view.need if view is not None else None
        self._journal.note(
            JournalEvent.STATE,
            machine=transition.machine_id,
            state=transition.after.name if transition.after else "GONE",
            cluster=transition.cluster or transition.former_cluster,
            need=need.fingerprint if need else None,
            group=need.group if need else None,
            decided=order.decided_seconds if order else None,
            note=_note(transition, adopted),
        )

    def _time_configuring(self, transition: Transition, order: Order | None) -> None:
        if order is not None and order.action_type is ActionType.BOOTSTRAP:
            self._configuring_since[transition.machine_id] = order.decided_seconds
        if transition.after is MachineState.CONFIGURING:
            return
        since_seconds = self._configuring_since.pop(transition.machine_id, None)
        if since_seconds is not None and transition.after is MachineState.CONFIGURED:
            elapsed_seconds = self._clock.monotonic_seconds() - since_seconds
            metrics.shard_configure_seconds.observe(max(0.0, elapsed_seconds))

    def _report_adoption(self, transition: Transition) -> None:
        metrics.shard_unexpected_transitions.labels(_move(transition)).inc()
        _LOG.warning(
            "unexpected state transition; adopted",
            extra={
                "machine": transition.machine_id,
                "move": _move(transition),
                "cluster": transition.cluster or transition.former_cluster,
                "story": self._journal.story(transition.machine_id),
            },
        )


def _expected(transition: Transition, order: Order | None) -> bool:
    """Whether the lifecycle, or an order under way, explains the transition."""
    before, after = transition.before, transition.after
    if before is None:
        return True
    changed_cluster = before in BOUND and transition.cluster not in ("", transition.former_cluster)
    if after is None or changed_cluster:
        return False
    if order is not None and (order.leads_to is after or (order.leads_to, after) in _MOVES):
        return True
    return (before, after) in _MOVES


def _move(transition: Transition) -> str:
    before = transition.before.name if transition.before else "NEW"
    return f"{before}->{transition.after.name if transition.after else 'GONE'}"


def _note(transition: Transition, adopted: bool) -> str:
    adoption = f"adopted: {_move(transition)}" if adopted else ""
    return "; ".join(part for part in (adoption, transition.last_error) if part)
