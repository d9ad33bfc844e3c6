"""Follows the market file while the provider runs, and quotes its machines by it."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bigfleet.model.errors import Unavailable
from bigfleet.model.machine import Machine
from bigfleet.observe.metrics import provider_price_changes
from bigfleet.ports.clock import Clock
from bigfleet.ports.host import HostFailure
from bigfleet.services.provider import market
from bigfleet.services.provider.lifecycle import Record
from bigfleet.services.provider.store import Store

# The file may be written or replaced at any time.
_POLL_INTERVAL_SECONDS = 0.5
# Orders are answered in between.
_QUOTED_AT_ONCE = 500
_DISK_RETRY_INTERVAL_SECONDS = 1.0

_LOG = logging.getLogger(__name__)


class MarketFollower:
    """The market at this moment. Without a file, machines are as their records have them.

    Create it when the store has been opened: prices and risks on disk are those of the inventory,
    and the market's are added to the records in memory.
    """

    def __init__(self, path: Path | None, store: Store, clock: Clock) -> None:
        self._path, self._store, self._clock = path, store, clock
        self._own = {} if path is None else {r.machine.id: _quote(r.machine) for r in store}
        self._market = market.Market()
        self._version: tuple[int, int, int] | None = None
        self._next_change = -math.inf

    def quoted(self, record: Record) -> Record:
        """The record with the price and risk of this moment."""
        machine = record.machine
        own = self._own.get(machine.id)
        if own is None:
            return record
        price, risk = own
        as_listed = replace(machine, price_per_hour=price, interruption_probability=risk)
        quoted = self._market.quoted(as_listed, self._clock.unix_seconds())
        return record if _quote(quoted) == _quote(machine) else replace(record, machine=quoted)

    def check_capacity(self, machine: Machine) -> None:
        """HostFailure if no machine of this kind can be had now."""
        if self._market.interruption(machine, self._clock.unix_seconds()) is not None:
            where = f"{machine.instance_type} in {machine.zone}"
            raise HostFailure(f"there is no spot capacity of {where} now")

    def is_gone(self, machine: Machine) -> bool:
        """Whether the machine's kind is gone."""
        return self._market.is_gone(machine, self._clock.unix_seconds())

    async def adopt(self, withdraw: Callable[[Record], None]) -> None:
        """Quote all machines anew if anything has changed; `withdraw` those of kinds that are gone.

        InvalidInput for a file that is not a market.
        """
        if self._path is None or not self._has_changed(self._path):
            return
        for number, each in enumerate(list(self._store), 1):
            record = await self._save_quote(each.machine.id)
            if self.is_gone(record.machine):
                withdraw(record)
            if number % _QUOTED_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def keep(self, withdraw: Callable[[Record], None]) -> None:
        """Adopt every change until cancelled, if there is a file; InvalidInput as for `adopt`."""
        while self._path is not None:
            left_seconds = self._next_change - self._clock.unix_seconds()
            await asyncio.sleep(max(0.0, min(_POLL_INTERVAL_SECONDS, left_seconds)))
            await self.adopt(withdraw)

    def _has_changed(self, path: Path) -> bool:
        """Whether it has since the last call; True for the first one."""
        now = self._clock.unix_seconds()
        has_changed = now >= self._next_change
        if (version := _version(path)) != self._version:
            self._market, self._version, has_changed = market.read(path), version, True
        if has_changed:
            self._next_change = self._market.next_change(now)
        return has_changed

    async def _save_quote(self, machine_id: str) -> Record:
        """Save the machine's record as the market has it, once the disk takes it."""
        while (quoted := self.quoted(record := self._store.get(machine_id))) is not record:
            try:
                self._store.save(quoted)
            except Unavailable as error:
                _LOG.error("%s; retrying every %g s", error, _DISK_RETRY_INTERVAL_SECONDS)
                await asyncio.sleep(_DISK_RETRY_INTERVAL_SECONDS)
            else:
                moved = quoted.machine.price_per_hour != record.machine.price_per_hour
                provider_price_changes.inc(moved)
        return record


def _quote(machine: Machine) -> tuple[float, float]:
    return machine.price_per_hour, machine.interruption_probability


def _version(path: Path) -> tuple[int, int, int] | None:
    """Changes with every change of the file; None without it."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
