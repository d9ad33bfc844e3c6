"""Prices that move and kinds of spot machines that are interrupted, by the market file."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest

from bigfleet.api.v1alpha1 import provider_pb2 as wire
from bigfleet.conformance.fenced_client import FencedClient
from bigfleet.conformance.subject import Subject
from bigfleet.model.errors import InvalidInput
from bigfleet.model.machine import CapacityType
from bigfleet.services.provider import market
from bigfleet.services.provider.config import Latencies, Latency
from bigfleet.services.provider.spot_market import SPOT_INTERRUPTED
from tests.support.providers import (
    SlowHost,
    machine,
    provider,
    settings,
    subject_of,
    write_inventory,
)
from tests.support.waiting import eventually

SPOT = {"capacity_type": "SPOT", "interruption_probability": 0.05}
OTHER_ZONE = {"zone": "zone-b", "rack": "zone-b-r1"}


def price(at: float, dollars: float, **changes: Any) -> dict[str, Any]:
    """A line that changes the price of the inventory's kind."""
    kind = {"instance_type": "m6i.large", "zone": "zone-a", "capacity_type": "ON_DEMAND"}
    return {"type": "price", "at": at, **kind, "price_per_hour": dollars} | changes


def interruption(at: float, notice: float, down: float) -> dict[str, Any]:
    """A line that interrupts the spot machines of the inventory's kind."""
    kind = {"instance_type": "m6i.large", "zone": "zone-a"}
    return {
        "type": "interruption",
        "at": at,
        **kind,
        "notice_seconds": notice,
        "down_seconds": down,
    }


def write(path: Path, *lines: dict[str, Any]) -> Path:
    """The lines as a market file, in one step as its writers do it."""
    draft = path.with_suffix(".new")
    draft.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return draft.rename(path)


def test_a_price_holds_from_its_change_until_the_next_one(tmp_path: Path) -> None:
    moves = price(200, 0.5), price(100, 0.1), price(100, 9.0, zone="zone-b")
    found = market.read(write(tmp_path / "market", *moves))
    one = machine("m-0")
    asked = (99.0, 100.0, 199.0, 200.0, 1e9)
    assert [found.quoted(one, at).price_per_hour for at in asked] == [0.25, 0.1, 0.1, 0.5, 0.5]
    spot = machine("m-1", capacity_type=CapacityType.SPOT)
    assert found.quoted(spot, 150).price_per_hour == 0.25, "of another capacity type"
    assert [found.next_change(at) for at in (0, 100, 200)] == [100, 200, math.inf]


def test_the_risk_of_a_kind_is_1_from_its_notice_until_it_is_back(tmp_path: Path) -> None:
    found = market.read(write(tmp_path / "market", interruption(100, 20, 30)))
    spot = machine("m-0", capacity_type=CapacityType.SPOT, interruption_probability=0.05)
    risks = [found.quoted(spot, at).interruption_probability for at in (99, 100, 149, 150)]
    assert risks == [0.05, 1.0, 1.0, 0.05]
    assert [found.is_gone(spot, at) for at in (119, 120, 149, 150)] == [False, True, True, False]
    assert [found.next_change(at) for at in (0, 100, 120, 150)] == [100, 120, 150, math.inf]
    bought = machine("m-1", interruption_probability=0.05)
    assert found.quoted(bought, 130) is bought, "on-demand capacity is not interrupted"


def test_without_a_file_nothing_changes(tmp_path: Path) -> None:
    assert market.read(tmp_path / "none") == market.Market()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (price(1, -1.0), "price_per_hour"),
        (price(1, 1.0, capacity_type="FREE"), "capacity_type"),
        (price(1, 1.0, until=2), "until"),
        (interruption(1, -1, 1), "notice_seconds"),
        ({"type": "flood"}, "flood"),
    ],
)
def test_a_line_that_is_no_change_is_named(tmp_path: Path, line: dict[str, Any], why: str) -> None:
    path = write(tmp_path / "market", price(1, 1.0), line)
    with pytest.raises(InvalidInput, match=f"{path} line 2.*{why}"):
        market.read(path)


async def prices(subject: Subject, since: bytes = b"") -> tuple[dict[str, float], bytes]:
    """The prices of the machines that changed, by id, and the revision."""
    answer = await subject.listed(since_revision=since)
    return {each.id: each.price_per_hour for each in answer.machines}, answer.revision


async def test_a_price_that_moves_is_listed_as_a_change_of_its_kind_alone(tmp_path: Path) -> None:
    """Shards list changes only; the file may come after the provider has started."""
    write_inventory(tmp_path / "inventory.jsonl", {"id": "m-0"}, {"id": "m-1", **OTHER_ZONE})
    path = tmp_path / "market"
    async with provider(settings(tmp_path, market_file=path)) as channel:
        subject = subject_of(channel)
        first, revision = await prices(subject)
        assert first == {"m-0": 0.25, "m-1": 0.25}
        write(path, price(time.time(), 0.75))

        async def moved() -> bool:
            return (await prices(subject, revision))[0] == {"m-0": 0.75}

        await eventually(moved)


async def test_a_provider_that_restarts_has_the_prices_of_the_moment(tmp_path: Path) -> None:
    """Also where a price is as in the inventory again."""
    path = write(tmp_path / "market", price(100, 0.75))
    given = settings(tmp_path, market_file=path)
    for dollars in (0.75, 0.25, 0.75):
        write(path, price(100, dollars))
        async with provider(given) as channel:
            assert (await prices(subject_of(channel)))[0]["m-0"] == dollars


async def test_an_operation_under_way_does_not_bring_back_the_old_price(tmp_path: Path) -> None:
    path = tmp_path / "market"
    slow = Latencies(create=Latency(3.0, 3.0))
    given = settings(tmp_path, market_file=path, latencies=slow)
    async with provider(given) as channel:
        subject = subject_of(channel)
        await subject.fenced_client().create("m-0")
        write(path, price(time.time(), 0.75))
        created = await subject.wait_for_state("m-0", wire.IDLE)
        assert created.price_per_hour == 0.75


async def test_a_file_that_is_no_market_keeps_a_provider_from_starting(tmp_path: Path) -> None:
    path = write(tmp_path / "market", {"type": "flood"})
    with pytest.raises(InvalidInput, match="flood"):
        async with provider(settings(tmp_path, market_file=path)):
            pass


async def serving_machines(subject: Subject, *names: str) -> FencedClient:
    """The shard that has created these and let them join a cluster."""
    shard = subject.fenced_client()
    for name in names:
        await shard.create(name)
        await subject.wait_for_state(name, wire.IDLE)
        await shard.configure(name, "c", b"blob", {})
        await subject.wait_for_state(name, wire.CONFIGURED)
    return shard


async def test_an_interrupted_kind_is_gone_after_its_notice_and_comes_back(tmp_path: Path) -> None:
    """In service it fails, idle it goes back, none can be created; another zone is unaffected."""
    kind: list[dict[str, Any]] = [{"id": f"m-{n}", **SPOT} for n in range(3)]
    write_inventory(tmp_path / "inventory.jsonl", *kind, {"id": "o-0", **SPOT, **OTHER_ZONE})
    path, host = tmp_path / "market", SlowHost()
    host.ready.set()
    async with provider(settings(tmp_path, market_file=path), host) as channel:
        subject = subject_of(channel)
        shard = await serving_machines(subject, "m-0", "o-0")
        await shard.create("m-1")
        await subject.wait_for_state("m-1", wire.IDLE)

        async def has_risk(risk: float) -> bool:
            return (await subject.get("m-0")).interruption_probability == risk

        write(path, interruption(time.time(), 1000, 1000))
        await eventually(lambda: has_risk(1.0))
        states = [(await subject.get(name)).state for name in ("m-0", "m-1")]
        assert states == [wire.CONFIGURED, wire.IDLE]
        write(path, interruption(time.time(), 0, 1000))
        lost = await subject.wait_for_state("m-0", wire.FAILED)
        assert (lost.last_error, host.powered_off) == (SPOT_INTERRUPTED, ["m-0"])
        await subject.wait_for_state("m-1", wire.SPECULATIVE)
        await shard.create("m-2")
        refused = await subject.wait_for_state("m-2", wire.FAILED)
        assert refused.last_error == "there is no spot capacity of m6i.large in zone-a now"
        write(path)
        await eventually(lambda: has_risk(0.05))
        await shard.create("m-1")
        await subject.wait_for_state("m-1", wire.IDLE)
        other = await subject.get("o-0")
        assert (other.state, other.interruption_probability) == (wire.CONFIGURED, 0.05)


async def test_a_machine_that_joins_within_the_notice_leaves_with_its_kind(tmp_path: Path) -> None:
    write_inventory(tmp_path / "inventory.jsonl", {"id": "m-0", **SPOT})
    path, host = tmp_path / "market", SlowHost()
    async with provider(settings(tmp_path, market_file=path), host) as channel:
        subject = subject_of(channel)
        shard = subject.fenced_client()
        await shard.create("m-0")
        await subject.wait_for_state("m-0", wire.IDLE)
        await shard.configure("m-0", "c", b"blob", {})
        write(path, interruption(time.time() - 1.0, 0.0, 60.0))
        await subject.wait_for_state("m-0", wire.CONFIGURING)
        host.ready.set()
        lost = await subject.wait_for_state("m-0", wire.FAILED)
        assert lost.last_error == SPOT_INTERRUPTED
