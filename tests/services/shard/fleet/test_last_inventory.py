"""After a restart machines that have not changed are known as they were, and not read again."""

from __future__ import annotations

import asyncio
import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.adapters.store.inventory_file import InventoryFile
from bigfleet.engine.decision import ActionType
from bigfleet.model.errors import BigFleetError
from bigfleet.model.machine import Machine, MachineState
from bigfleet.model.need import NeedKey
from bigfleet.services.shard.fleet import last_inventory
from bigfleet.services.shard.fleet.assignment import to_metadata
from bigfleet.services.shard.fleet.inventory import Inventory
from bigfleet.services.shard.fleet.last_inventory import InventorySaver
from bigfleet.services.shard.records.interning import Numbers
from bigfleet.services.shard.records.orders import Order
from bigfleet.services.shard.records.views import MachineView
from tests.support.shard_rig import machine, need
from tests.support.waiting import eventually

_S = MachineState


def known(*machines: Machine, provider: str = "") -> Inventory:
    kept = Inventory(Numbers())
    kept.apply(machines, 0.0, provider)
    return kept


def restarted(former: Inventory) -> Inventory:
    """An inventory of another process, which knows what `former` had saved."""
    kept = Inventory(Numbers())
    kept.last = last_inventory.decode(last_inventory.encode(former.content()))
    return kept


def recalled(former: Inventory, *records: Machine, provider: str = "") -> Inventory:
    """What a new process makes of a full listing of `records`."""
    kept = restarted(former)
    ids, digests = [each.id for each in records], [each.digest for each in records]
    same = {*kept.unchanged(ids, digests, provider)}
    kept.recall(same, 5.0)
    kept.apply([each for each in records if each.id not in same], 5.0, provider)
    return kept


def views(kept: Inventory, machines: list[Machine]) -> list[MachineView | None]:
    return [kept.view(each.id) for each in machines]


@st.composite
def fleets(draw: st.DrawFn) -> list[Machine]:
    """Machines in any state, some of them bound to clusters for needs, each with its digest."""
    found = []
    for number in range(draw(st.integers(0, 30))):
        state = draw(st.sampled_from([_S.SPECULATIVE, _S.IDLE, _S.CONFIGURED, _S.FAILED]))
        cluster = draw(st.sampled_from(["east", "west"])) if state is _S.CONFIGURED else ""
        wanted = need(priority=draw(st.integers(0, 2)), zone=draw(st.sampled_from("ab")))
        one = machine(f"m-{number}", state, cluster, shard_metadata=to_metadata(wanted))
        labels = {"rack": draw(st.sampled_from("abc")), "kubernetes.io/hostname": one.id}
        error = "broken" if state is _S.FAILED else ""
        found.append(replace(one, labels=labels, last_error=error, digest=number + 1))
    return found


@given(fleets(), st.sets(st.integers(0, 29)))
def test_an_inventory_recalled_is_the_one_read_anew(
    machines: list[Machine], changed: set[int]
) -> None:
    """Whichever of them changed meanwhile, and in every column that decisions see."""
    now = [
        replace(each, price_per_hour=9.0, digest=1_000 + number) if number in changed else each
        for number, each in enumerate(machines)
    ]
    kept, fresh = recalled(known(*machines), *now), Inventory(Numbers())
    fresh.apply(now, 5.0)
    assert views(kept, now) == views(fresh, now)
    fleet, wants = kept.snapshot(())
    other, others = fresh.snapshot(())
    order = kept.places([each.id for each in now])
    at = fresh.places([each.id for each in now])
    for name, values in other.columns().items():
        if name not in ("flavour", "cluster", "tie_break"):
            np.testing.assert_array_equal(fleet.columns()[name][order], values[at], name)
    assert [wants.keys[n] if n >= 0 else None for n in wants.numbers[order].tolist()] == [
        others.keys[n] if n >= 0 else None for n in others.numbers[at].tolist()
    ]


def test_what_a_machine_serves_is_known_as_it_was_last() -> None:
    """Its metadata only says what it was bought for."""
    one = replace(machine("m-1", _S.CREATING, shard_metadata={}), digest=7)
    former, later = known(one), need()
    former.attribute(Order(ActionType.PROVISION, "m-1", "east", later, 0, 0.0))
    view = recalled(former, one).view("m-1")
    assert view is not None
    assert view.need == NeedKey("east", *later.key)


def test_the_cluster_of_a_recalled_machine_is_told_of_it() -> None:
    """Its operator may have connected before the machine was known."""
    machines = [replace(machine("m-1", _S.CONFIGURED, "east"), digest=1),
                replace(machine("m-2"), digest=2)]  # fmt: skip
    kept = restarted(known(*machines))
    (arrival,) = kept.recall(["m-1", "m-2"], 5.0)
    assert (arrival.machine_id, arrival.cluster, arrival.before) == ("m-1", "east", None)
    assert kept.recall(["m-1", "m-2"], 5.0) == []


def test_only_a_record_as_it_was_of_the_same_provider_is_not_read_again() -> None:
    one = replace(machine("m-1"), digest=7)
    kept = restarted(known(one, provider="a"))
    assert [*kept.unchanged(["m-1", "m-2"], [7, 7], "a")] == ["m-1"]
    assert [*kept.unchanged(["m-1"], [8], "a")] == []
    assert [*kept.unchanged(["m-1"], [7], "b")] == []
    kept.apply([replace(one, digest=9)], 1.0, "a")
    assert [*kept.unchanged(["m-1"], [7], "a")] == [], "it has changed since, and back"
    unknown = restarted(known(machine("m-1")))
    assert [*unknown.unchanged(["m-1"], [0], "")] == [], "no digest says nothing"


def test_an_idle_machine_is_held_from_the_restart_on() -> None:
    """For how long it was idle is unknown, as the clock is another one."""
    kept = recalled(known(idle := replace(machine("m-1"), digest=1)), idle)
    fleet, _ = kept.snapshot(())
    assert fleet.unused_since_seconds.tolist() == [5.0]


@pytest.mark.parametrize(
    "content", [b"", b"no gzip", gzip.compress(b"\x80", mtime=0)], ids=["empty", "text", "other"]
)
def test_a_damaged_file_is_a_warning_and_all_machines_are_read_again(
    content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    assert last_inventory.decode(content) is None
    assert "all machines are read again" in caplog.text


def test_a_file_of_another_format_is_left_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier release read records differently."""
    with monkeypatch.context() as earlier:
        earlier.setattr(last_inventory, "FORMAT", last_inventory.FORMAT - 1)
        content = last_inventory.encode(known(machine("m-1")).content())
    assert last_inventory.decode(content) is None


async def test_the_inventory_is_saved_once_all_providers_are_listed(tmp_path: Path) -> None:
    """Before, machines would be missing in it."""
    store, listed = InventoryFile(tmp_path), asyncio.Event()
    former = known(one := replace(machine("m-1"), digest=7))
    saving = asyncio.create_task(InventorySaver(store, former, listed).run())
    await asyncio.sleep(0)
    assert store.load() is None
    listed.set()
    await eventually(lambda: store.load() is not None, "the inventory to be saved")
    saving.cancel()
    later = Inventory(Numbers())
    InventorySaver(store, later, listed)
    assert [*later.unchanged([one.id], [7], "")] == [one.id]


@pytest.mark.parametrize(
    "failure", [BigFleetError("no space left"), MemoryError()], ids=["full", "memory"]
)
async def test_a_disk_that_fails_costs_time_at_the_next_start_and_nothing_now(
    failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    class Full:
        def load(self) -> bytes | None:
            raise BigFleetError("inventory.bin: permission denied")

        def save(self, content: bytes) -> None:
            assert content
            raise failure

    listed = asyncio.Event()
    listed.set()
    kept = known(machine("m-1"))
    saving = asyncio.create_task(InventorySaver(Full(), kept, listed).run())
    assert "all machines are read again" in caplog.text
    assert kept.last is None
    await eventually(lambda: "not saved" in caplog.text, "the warning")
    assert not saving.done()
    saving.cancel()
