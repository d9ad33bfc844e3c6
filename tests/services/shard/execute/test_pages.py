"""A shard reads its provider's listing in pages, over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import grpc
import pytest

from bigfleet.adapters.provider import grpc as adapter
from bigfleet.api import machine_codec
from bigfleet.api.v1alpha1 import provider_pb2 as wire
from bigfleet.model.machine import Machine, MachineState
from loaddriver.wire.provider import Context, InstantProvider, serve
from tests.support.many_machines import machines
from tests.support.shard_rig import Rig, cycles, shard
from tests.support.waiting import eventually

PAGE_MACHINES = 40
MACHINES = 2 * PAGE_MACHINES + 10
ON_FIRST_PAGE, ON_LAST_PAGE = "m-000007", f"m-{MACHINES - 1:06d}"


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "PAGE_MACHINES", PAGE_MACHINES)


@dataclass
class PagedProvider(InstantProvider):
    """Pages after the first are answered only while `open` is set. `sizes` are those of all
    answers; so many page tokens as `forgets` are rejected. With `shown_first`, the first page of
    the next listing has a machine with this last error that the last page has as it is.
    """

    open: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    sizes: list[int] = field(default_factory=list)
    forgets: int = 0
    shown_first: str = ""

    def __post_init__(self) -> None:
        InstantProvider.__init__(self, machines(MACHINES, 1, {}))
        self.open.set()

    async def List(self, request: wire.ListFilter, context: Context) -> wire.MachineList:
        """A page."""
        if request.page_token:
            self.waiting.set()
            await self.open.wait()
            if self.forgets:
                self.forgets -= 1
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the page token expired")
        answer = await super().List(request, context)
        if self.shown_first and not request.since_revision:
            self._show_twice(answer)
        self.sizes.append(len(answer.machines))
        return answer

    def _show_twice(self, answer: wire.MachineList) -> None:
        for machine in answer.machines:
            if machine.id == ON_FIRST_PAGE:
                machine.last_error = self.shown_first
        if not answer.next_page_token:
            answer.machines.append(self.machines[ON_FIRST_PAGE])
            self.shown_first = ""


class IgnoresLimits(InstantProvider):
    """A provider of an earlier release that returns everything."""

    async def List(self, request: wire.ListFilter, context: Context) -> wire.MachineList:
        """Everything since a revision."""
        known = wire.ListFilter(since_revision=request.since_revision)
        return await super().List(known, context)


class CutsWithoutSaying(InstantProvider):
    """A provider of an earlier release that limits its answers, and has no page tokens."""

    async def List(self, request: wire.ListFilter, context: Context) -> wire.MachineList:
        """The first of those since a revision."""
        answer = await super().List(request, context)
        answer.ClearField("next_page_token")
        return answer


@asynccontextmanager
async def shard_of(provider: InstantProvider, directory: Path) -> AsyncIterator[Rig]:
    """A shard whose provider is served over gRPC."""
    server, address = await serve(provider)
    client = adapter.GrpcProvider(address)
    try:
        async with shard(client, directory) as rig:
            yield rig
    finally:
        await client.close()
        await server.stop(None)


def known(rig: Rig) -> int:
    """The number of machines that the shard knows."""
    return len(rig.shard.inventory)


def last_error(rig: Rig, machine_id: str) -> str | None:
    """The last error of a machine that the shard knows."""
    view = rig.shard.inventory.view(machine_id)
    return view.last_error if view is not None else None


async def test_no_answer_holds_more_than_a_page(tmp_path: Path) -> None:
    """All machines are known before the first decision, and each was sent once."""
    provider = PagedProvider()
    async with shard_of(provider, tmp_path) as rig:
        await cycles(rig, 1)
        assert known(rig) == MACHINES
    assert [size for size in provider.sizes if size] == [PAGE_MACHINES, PAGE_MACHINES, 10]


async def test_sessions_are_served_between_pages(tmp_path: Path) -> None:
    """A roll-up is acknowledged while the second page does not arrive; nothing is decided yet."""
    provider = PagedProvider()
    provider.open.clear()
    async with shard_of(provider, tmp_path) as rig:
        await provider.waiting.wait()
        operator = await rig.operator()
        acknowledged = await operator.roll_up()
        assert not acknowledged.rejected
        assert rig.shard.cycle.latest is None
        provider.open.set()
        await cycles(rig, 1)
        assert known(rig) == MACHINES


async def test_a_page_is_fetched_while_the_one_before_it_is_applied(tmp_path: Path) -> None:
    """The second page is asked for although the first cannot be applied yet; no more than one."""
    provider = PagedProvider()
    async with shard_of(provider, tmp_path) as rig:
        await cycles(rig, 1)
        provider.waiting.clear()
        async with rig.shard.inventory.lock:
            provider.sizes.clear()
            rig.shard.cycle.providers.request_full_listings()
            await provider.waiting.wait()
            await eventually(lambda: len(provider.sizes) >= 2)
            assert provider.sizes == [PAGE_MACHINES, PAGE_MACHINES]


async def test_a_machine_on_two_pages_is_as_the_last_one_has_it(tmp_path: Path) -> None:
    """It changed and changed back while the pages were read: what the first of them says is over,
    although the second has the record that was known before.
    """
    provider = PagedProvider()
    async with shard_of(provider, tmp_path) as rig:
        await cycles(rig, 1)
        provider.shown_first = "its disk broke"
        rig.shard.cycle.providers.request_full_listings()
        await eventually(lambda: provider.shown_first == "")
        await cycles(rig, 2)
        assert last_error(rig, ON_FIRST_PAGE) == ""


async def test_a_machine_that_changes_after_its_page_was_read_is_seen(tmp_path: Path) -> None:
    """The listing since the revision of the last page has it."""
    provider = PagedProvider()
    provider.open.clear()
    async with shard_of(provider, tmp_path) as rig:
        await provider.waiting.wait()
        changed = provider.machines[ON_FIRST_PAGE]
        changed.state, changed.last_error = wire.FAILED, "its disk broke"
        provider.change(changed)
        provider.open.set()
        # Its state is seen too, but not for long: a machine that failed is deleted at once.
        await eventually(lambda: last_error(rig, ON_FIRST_PAGE) == "its disk broke")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the machines whose records were read, in order."""
    ids: list[str] = []
    original = machine_codec.machine_from_wire

    def noted(message: wire.Machine, digest: int = 0) -> Machine:
        ids.append(message.id)
        return original(message, digest)

    monkeypatch.setattr(machine_codec, "machine_from_wire", noted)
    return ids


async def test_of_a_full_listing_only_what_has_changed_is_read(
    tmp_path: Path, read: list[str]
) -> None:
    """Also of machines that no listing since the last revision named, and none is dropped."""
    provider = PagedProvider()
    async with shard_of(provider, tmp_path) as rig:
        await cycles(rig, 1)
        assert len(read) == MACHINES
        read.clear()
        provider.machines[ON_LAST_PAGE].last_error = "it was not told"
        rig.shard.cycle.providers.request_full_listings()
        await eventually(lambda: last_error(rig, ON_LAST_PAGE) == "it was not told")
        await cycles(rig, 1)
        assert read == [ON_LAST_PAGE]
        assert known(rig) == MACHINES


async def test_a_machine_that_is_as_it_was_before_an_order_is_read_again(
    tmp_path: Path, read: list[str]
) -> None:
    """What was applied last is the answer to the order, not the record of an earlier listing."""
    provider = PagedProvider()
    async with shard_of(provider, tmp_path) as rig:
        await cycles(rig, 1)
        before = wire.Machine.FromString(provider.machines[ON_FIRST_PAGE].SerializeToString())
        inventory = rig.shard.inventory
        ordered = replace(machine_codec.machine_from_wire(before), state=MachineState.DELETING)
        inventory.apply([ordered], 0.0)
        read.clear()
        rig.shard.cycle.providers.request_full_listings()
        await eventually(lambda: inventory.state(ON_FIRST_PAGE) is MachineState.IDLE)
        assert read == [ON_FIRST_PAGE]


async def test_an_interrupted_listing_begins_again_and_drops_nothing(tmp_path: Path) -> None:
    """The provider forgets its page tokens: machines of pages not read yet are not gone."""
    provider = PagedProvider()
    async with shard_of(provider, tmp_path) as rig:
        await cycles(rig, 1)
        del provider.machines[ON_LAST_PAGE]
        provider.forgets = 2
        rig.shard.cycle.providers.request_full_listings()
        await eventually(lambda: provider.forgets == 0)
        assert known(rig) >= MACHINES - 1
        await eventually(lambda: rig.shard.inventory.state(ON_LAST_PAGE) is None)
        assert known(rig) == MACHINES - 1


@pytest.mark.parametrize("earlier", [IgnoresLimits, CutsWithoutSaying])
async def test_a_provider_without_pages_is_read_whole(
    earlier: type[InstantProvider], tmp_path: Path
) -> None:
    """Whether it ignores the limit or cuts its answer, no machine is missing, nor dropped later."""
    async with shard_of(earlier(machines(MACHINES, 1, {})), tmp_path) as rig:
        await cycles(rig, 1)
        assert known(rig) == MACHINES
        rig.shard.cycle.providers.request_full_listings()
        await cycles(rig, 2)
        assert known(rig) == MACHINES
