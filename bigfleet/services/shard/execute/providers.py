"""The capacity providers of a shard, side by side.

Each has a listing, fences and a limit of calls of its own, so that one that does not answer delays
nothing of the others: decisions go on without it, and hold what is known of its machines
(`fleet/holds.py`). With a single provider no decision is made while it does not answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bigfleet.model.errors import BigFleetError, Unavailable
from bigfleet.observe import metrics
from bigfleet.ports.clock import Clock
from bigfleet.ports.provider import CapacityProvider
from bigfleet.services.shard.config import ShardConfig
from bigfleet.services.shard.execute.fences import FenceSequence
from bigfleet.services.shard.execute.reconciler import Reconciler
from bigfleet.services.shard.fleet.inventory import Inventory
from bigfleet.tasks import cancel_and_wait

# A decision waits so long for a listing, once; it is used when it comes. Without these machines
# dearer ones would be acquired, so that a few seconds are better waited for.
LATE_SECONDS = 3.0
# After a start a decision waits so long for all providers: what they have is not known yet, and
# would be purchased again. Until then operators have reported the Nodes that they have.
FIRST_LISTING_SECONDS = 30.0
# Machines on their way from a silent provider are expected for so long.
EXPECTED_SECONDS = 60.0

_LOG = logging.getLogger(__name__)


@dataclass(eq=False)
class ProviderLink:
    """One provider at `address`. `key` identifies it in the inventory; `slots` limits the
    concurrent calls.
    """

    key: str
    address: str
    client: CapacityProvider
    reconciler: Reconciler
    fences: FenceSequence
    slots: asyncio.Semaphore
    #: why its last listing failed, or is late, and since when
    error: BaseException | None = None
    silent_since_seconds: float = 0.0
    was_listed: bool = False
    _listing: asyncio.Task[None] | None = field(default=None, init=False)
    _is_late: bool = field(default=False, init=False)

    async def list_alone(self, now_seconds: float) -> None:
        """A listing of the only provider, however long it takes. Unavailable if it fails."""
        try:
            await self.reconciler.refresh()
        except Unavailable as error:
            self._fell_silent(error, now_seconds)
            raise
        self._answered()

    def begin_listing(self) -> asyncio.Task[None] | None:
        """Start a listing unless one is being read; None for one that is late already."""
        if self._listing is None:
            self._listing = asyncio.create_task(self.reconciler.refresh())
        elif self._is_late and not self._listing.done():
            return None
        return self._listing

    def settle(self, now_seconds: float) -> None:
        """Take note of whether the listing has succeeded, failed or is late."""
        listing = self._listing
        if listing is None or not listing.done():
            self._is_late = True
            late = f"provider at {self.address}: its listing takes more than {LATE_SECONDS:g} s"
            self._fell_silent(Unavailable(late), now_seconds)
            return
        self._listing, self._is_late = None, False
        error = listing.exception()
        if error is None:
            self._answered()
            return
        if not isinstance(error, BigFleetError):
            metrics.internal_errors.inc()
            _LOG.error("listing failed", exc_info=error, extra={"provider": self.address})
        self._fell_silent(error, now_seconds)

    def _answered(self) -> None:
        if self.error is not None and self.was_listed:
            _LOG.info("provider answers again", extra={"provider": self.address})
        self.error, self.was_listed = None, True

    def _fell_silent(self, error: BaseException, now_seconds: float) -> None:
        if self.error is None:
            self.silent_since_seconds = now_seconds
            fields = {"provider": self.address, "error": str(error)}
            _LOG.warning("provider does not answer; its machines are held", extra=fields)
        self.error = error

    async def close(self) -> None:
        """End the listing that is being read, and forget one that has failed."""
        if self._listing is not None:
            await cancel_and_wait(self._listing)
            if not self._listing.cancelled():
                self._listing.exception()


def side_by_side(
    config: ShardConfig,
    epoch: int,
    clients: Mapping[str, CapacityProvider],
    reconcile: Callable[[str, CapacityProvider], Reconciler],
) -> Iterator[ProviderLink]:
    """A link to each of `clients`, which are by address; the only one has the key ""."""
    for address, client in clients.items():
        key = address if len(clients) > 1 else ""
        fences = FenceSequence(config.shard_id, epoch)
        slots = asyncio.Semaphore(config.execute_concurrency)
        yield ProviderLink(key, address, client, reconcile(key, client), fences, slots)


class Providers:
    """All providers of a shard, in the order of its configuration. `on_refreshed` is called when
    the inventory is up to date, `on_late_listing` when a listing has come that no decision waited
    for.
    """

    def __init__(
        self,
        links: Sequence[ProviderLink],
        inventory: Inventory,
        clock: Clock,
        on_refreshed: Callable[[], None],
        on_late_listing: Callable[[], None],
    ) -> None:
        self.by_address = {link.address: link for link in links}
        self._by_key = {link.key: link for link in links}
        self._inventory, self._clock = inventory, clock
        self._on_refreshed, self._on_late_listing = on_refreshed, on_late_listing
        self._began_seconds: float | None = None
        #: set once no provider is `unlisted`
        self.all_listed = asyncio.Event()

    @property
    def unlisted(self) -> Collection[str]:
        """The addresses of providers whose machines are not known at all yet."""
        return [each.address for each in self._links if not each.was_listed]

    def may_be_unlisted(self, machine_id: str) -> bool:
        """Whether the machine is unknown, and a provider may have it that was not listed yet."""
        return bool(self.unlisted) and self._inventory.provider_of(machine_id) is None

    @property
    def _links(self) -> Collection[ProviderLink]:
        return self.by_address.values()

    def of(self, machine_id: str) -> ProviderLink:
        """The provider of a known machine."""
        return self._by_key[self._inventory.provider_of(machine_id) or next(iter(self._by_key))]

    def request_full_listings(self) -> None:
        """Make the next listing of each provider a full one."""
        for link in self._links:
            link.reconciler.request_full_listing()

    async def refresh(self) -> None:
        """Bring the inventory up to date, and hold the machines of providers that do not answer in
        time. Unavailable while no decision may be made.
        """
        now_seconds = self._clock.monotonic_seconds()
        if self._began_seconds is None:
            self._began_seconds = now_seconds
        if len(self._links) == 1:
            await next(iter(self._links)).list_alone(now_seconds)
        else:
            await self._refresh_all(now_seconds)
        if not self.unlisted:
            self.all_listed.set()
        self._on_refreshed()

    async def _refresh_all(self, now_seconds: float) -> None:
        await self._list()
        for link in self._links:
            link.settle(now_seconds)
        silent = {link.key: link for link in self._links if link.error is not None}
        self._hold(silent, now_seconds)
        self._check(silent, now_seconds)

    async def _list(self) -> None:
        """Wait for all listings that are not late already."""
        listings = [each for link in self._links if (each := link.begin_listing()) is not None]
        if listings:
            _, late = await asyncio.wait(listings, timeout=LATE_SECONDS)
            for listing in late:
                listing.add_done_callback(lambda _: self._on_late_listing())

    def _hold(self, silent: Mapping[str, ProviderLink], now_seconds: float) -> None:
        holds = self._inventory.holds
        holds.silent = {key: str(link.error) for key, link in silent.items()}
        holds.given_up = {
            key
            for key, link in silent.items()
            if now_seconds - link.silent_since_seconds >= EXPECTED_SECONDS
        }
        holds.colliding = dict(self._collisions())
        metrics.shard_providers_silent.set(len(silent))
        metrics.shard_machine_ids_colliding.set(len(holds.colliding))

    def _collisions(self) -> Iterator[tuple[str, tuple[str, str]]]:
        for link in self._links:
            for machine_id in link.reconciler.refused:
                if self._inventory.provider_of(machine_id) is None:
                    # The provider that had it has dropped it.
                    link.reconciler.request_full_listing()
                else:
                    yield machine_id, (self.of(machine_id).address, link.address)

    def _check(self, silent: Mapping[str, ProviderLink], now_seconds: float) -> None:
        if len(silent) == len(self._links):
            raise Unavailable("; ".join(str(link.error) for link in silent.values()))
        assert self._began_seconds is not None
        if self.unlisted and now_seconds - self._began_seconds < FIRST_LISTING_SECONDS:
            errors = (str(link.error) for link in silent.values() if not link.was_listed)
            raise Unavailable(f"waiting for each provider's first listing: {'; '.join(errors)}")

    async def close(self) -> None:
        """End the listings that are being read."""
        for link in self._links:
            await link.close()
