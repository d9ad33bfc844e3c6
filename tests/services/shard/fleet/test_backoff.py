"""Failures of one cluster, offering or machine do not delay others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from bigfleet.adapters.clock.manual import ManualClock
from bigfleet.adapters.clock.system import SystemClock
from bigfleet.adapters.provider.memory import MemoryProvider
from bigfleet.commands import shard_queries
from bigfleet.engine.snapshot import NONE, Flavour, Ints
from bigfleet.model.machine import CapacityType, Machine, MachineState
from bigfleet.services.shard.fleet.backoff import FailureBackOff
from bigfleet.services.shard.records.views import Transition
from bigfleet.services.shard.sessions import session
from tests.engine.engine_rig import configured, fleet_of, idle
from tests.support.shard_rig import Rig, cycles, machine, need, shard
from tests.support.waiting import eventually

_S = MachineState


def speculative(name: str, price: float) -> Machine:
    """An elastic machine that is still to be bought, of a type of its own price."""
    instance_type = name.partition("-")[0]
    return machine(name, _S.SPECULATIVE, instance_type=instance_type, price_per_hour=price)


class SoldOut(MemoryProvider):
    """Accepts every order, and can deliver no machine of one type."""

    def __init__(self, machines: list[Machine], instance_type: str) -> None:
        super().__init__(machines, auto_finish=True)
        self.instance_type = instance_type

    def finish(self, machine_id: str) -> Machine:
        """As the real thing fails: after a while, with the seller's words."""
        known = self._known(machine_id)
        if known.state is _S.CREATING and known.instance_type == self.instance_type:
            return self.fail(machine_id, "InsufficientInstanceCapacity")
        return super().finish(machine_id)


async def test_an_operator_that_does_not_answer_keeps_no_other_cluster_waiting(
    tmp_path: Path,
) -> None:
    """It has questions in plenty, of higher priority; the other's machine joins meanwhile."""
    machines = [machine(f"m-{number}") for number in range(20)]
    provider = MemoryProvider(machines, auto_finish=True)
    async with shard(provider, tmp_path, execute_concurrency=4) as rig:
        silent, other = await rig.operator("silent", helpful=False), await rig.operator("other")
        await silent.roll_up(need(10, priority=100))
        await silent.receives(lambda m: m.bootstrap_request.request_id != "")
        async with asyncio.timeout(session.ANSWER_TIMEOUT_SECONDS / 3):
            await other.roll_up(need())
            await other.receives(lambda m: m.node_state_update.state == int(_S.CONFIGURED))


async def test_machines_are_not_held_for_an_operator_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only machine is decided for it, until it has left the question unanswered; asked again
    later, it is asked one question.
    """
    monkeypatch.setattr(session, "ANSWER_TIMEOUT_SECONDS", 0.5)
    provider = MemoryProvider([machine("m-1"), machine("m-2")], auto_finish=True)
    async with shard(provider, tmp_path) as rig:
        silent, other = await rig.operator("silent", helpful=False), await rig.operator("other")
        await silent.roll_up(need(2, priority=100))
        await silent.receives(lambda m: m.bootstrap_request.request_id != "")
        await other.roll_up(need())
        await other.receives(lambda m: m.node_state_update.state == int(_S.CONFIGURED))
        silent.helpful = True
        await silent.receives(lambda m: m.node_state_update.state == int(_S.CONFIGURED))


async def test_what_is_sold_out_is_not_asked_for_at_once_again(tmp_path: Path) -> None:
    """The next best is bought instead, and `why` says what is not bought, since when and why."""
    cheap = [speculative(f"cheap-{number}", 0.1) for number in range(3)]
    dear = [speculative(f"dear-{number}", 0.3) for number in range(3)]
    provider = SoldOut([*cheap, *dear], "cheap")
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        await operator.roll_up(need())
        await operator.receives(lambda m: m.node_state_update.state == int(_S.CONFIGURED))
        await cycles(rig, 10)
        told = await shard_queries.ask(rig.address, shard_queries.need_query("east"))
    created = [machine_id for call, machine_id, _ in provider.orders if call == "CREATE"]
    assert [name.partition("-")[0] for name in created] == ["cheap", "dear"]
    [view] = told.data["needs"]
    [offering] = view["unavailable_offerings"]
    assert offering.startswith("cheap in a, on-demand: failed once, last ")
    assert "InsufficientInstanceCapacity" in offering


async def test_what_was_sold_out_is_tried_again_after_its_rest(tmp_path: Path) -> None:
    """With nothing else to be had, the need waits, says so, and is served in the end."""
    provider = SoldOut([speculative("cheap-1", 0.1), speculative("cheap-2", 0.1)], "cheap")
    clock = ManualClock(start_seconds=1e9)
    async with shard(provider, tmp_path, clock=clock) as rig:
        operator = await rig.operator()
        await operator.roll_up(need())
        await eventually(lambda: [call for call, *_ in provider.orders].count("CREATE") == 1)
        await cycles(rig, 5)
        clock.advance(5.0)
        await operator.receives(
            lambda m: [s.reason for s in m.demand_status.short] == ["OfferingsUnavailable"]
        )
        provider.instance_type = "none"
        clock.advance(31.0)
        await operator.receives(lambda m: m.node_state_update.state == int(_S.CONFIGURED))


async def test_a_machine_that_does_not_boot_is_not_the_only_one_tried(tmp_path: Path) -> None:
    """It would be first in every queue, as the cheapest that is idle."""

    class NeverBoots(MemoryProvider):
        def finish(self, machine_id: str) -> Machine:
            known = self._known(machine_id)
            if known.state is _S.CONFIGURING and machine_id == "m-1":
                idle = replace(known, state=_S.IDLE, cluster="", last_error="no kubelet")
                self.report(idle)
                return idle
            return super().finish(machine_id)

    fixed = CapacityType.BARE_METAL
    machines = [
        machine("m-1", price_per_hour=0.1, capacity_type=fixed),
        machine("m-2", price_per_hour=0.3, capacity_type=fixed),
    ]
    provider = NeverBoots(machines, auto_finish=True)
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        await operator.roll_up(need())
        await operator.receives_state("m-2", _S.CONFIGURED)
    configured = [machine_id for call, machine_id, _ in provider.orders if call == "CONFIGURE"]
    assert configured == ["m-1", "m-2"]


class BootsFailIn(MemoryProvider):
    """Machines do not become Ready in some clusters."""

    def __init__(self, machines: list[Machine], *clusters: str) -> None:
        super().__init__(machines, auto_finish=True)
        self.clusters = clusters

    def finish(self, machine_id: str) -> Machine:
        """A boot fails after a while, and the machine is given back."""
        known = self._known(machine_id)
        if known.state is _S.CONFIGURING and known.cluster in self.clusters:
            return self.fail(machine_id, "no kubelet")
        return super().finish(machine_id)

    def has_tried(self, boots: int) -> bool:
        """Whether so many were attempted."""
        return self.boots() >= boots

    def boots(self) -> int:
        """How many were attempted."""
        return [call for call, *_ in self.orders].count("CONFIGURE")

    def purchases(self) -> int:
        """How many machines were bought."""
        return [call for call, *_ in self.orders].count("CREATE")

    def has_untried(self) -> bool:
        """Whether a machine was bought that no boot was attempted of, and is there."""
        tried = {machine_id for call, machine_id, _ in self.orders if call == "CONFIGURE"}
        return any(m.state is _S.IDLE and m.id not in tried for m in self._machines.values())

    def is_at_rest(self) -> bool:
        """Whether each machine is where it stays until something is ordered."""
        return all(m.state in (_S.SPECULATIVE, _S.IDLE) for m in self._machines.values())


async def comes_to_rest(rig: Rig, provider: BootsFailIn) -> None:
    """Return after ten cycles that order nothing, with nothing under way."""
    orders = None
    while orders != len(provider.orders):
        orders = len(provider.orders)
        await eventually(provider.is_at_rest)
        await cycles(rig, 10)


async def test_a_cluster_whose_machines_do_not_boot_leaves_their_offering_to_others(
    tmp_path: Path,
) -> None:
    """Only its own credentials or network may be broken: it waits, and another one is served."""
    provider = BootsFailIn([speculative(f"cheap-{n}", 0.1) for n in range(4)], "broken")
    clock = ManualClock(start_seconds=1e9)
    async with shard(provider, tmp_path, clock=clock) as rig:
        broken, other = await rig.operator("broken"), await rig.operator("other")
        await broken.roll_up(need(priority=100))
        await eventually(lambda: provider.boots() == 2)
        await cycles(rig, 10)
        clock.advance(5.0)
        await broken.receives(
            lambda m: [s.reason for s in m.demand_status.short] == ["OfferingsUnavailable"]
        )
        await other.roll_up(need())
        await other.receives(lambda m: m.node_state_update.state == int(_S.CONFIGURED))
        await cycles(rig, 10)
        told = await shard_queries.ask(rig.address, shard_queries.need_query("broken"))
    assert provider.boots() == 3
    [view] = told.data["needs"]
    assert view["unavailable_offerings"][0].startswith("cheap in a, on-demand: failed 2 times")


async def test_a_cluster_whose_machines_do_not_boot_is_tried_with_one_at_a_time(
    tmp_path: Path,
) -> None:
    """Else all that it needs would be bought after each backoff, and deleted again unused."""
    names = [f"type{n}-{m}" for n in range(8) for m in range(2)]
    provider = BootsFailIn([speculative(name, 0.1) for name in names], "broken")
    clock = ManualClock(start_seconds=1e9)
    async with shard(provider, tmp_path, clock=clock) as rig:
        operator = await rig.operator("broken")
        await operator.roll_up(need(8))
        await eventually(lambda: provider.boots() >= 5)
        await comes_to_rest(rig, provider)
        for _ in range(3):
            boots, purchases = provider.boots(), provider.purchases()
            # One that was bought before the last failures were known is tried first.
            bought = 0 if provider.has_untried() else 1
            clock.advance(1000.0)
            await eventually(partial(provider.has_tried, boots + 1))
            await comes_to_rest(rig, provider)
            assert (provider.boots(), provider.purchases()) == (boots + 1, purchases + bought)
        provider.clusters = ()
        clock.advance(1000.0)
        await eventually(lambda: len(list(rig.shard.inventory.bound_to("broken"))) == 8)


async def test_an_offering_whose_machines_boot_in_no_cluster_is_bought_for_none(
    tmp_path: Path,
) -> None:
    """A second cluster shows that the first one is not to blame; a third need not find out."""
    machines = [speculative(f"cheap-{n}", 0.1) for n in range(6)]
    provider = BootsFailIn(machines, "first", "second", "third")
    clock = ManualClock(start_seconds=1e9)
    async with shard(provider, tmp_path, clock=clock) as rig:
        for boots, name in enumerate(("first", "second", "third"), 2):
            operator = await rig.operator(name)
            await operator.roll_up(need())
            await eventually(partial(provider.has_tried, min(boots, 3)))
            await cycles(rig, 10)
        clock.advance(5.0)
        await operator.receives(
            lambda m: [s.reason for s in m.demand_status.short] == ["OfferingsUnavailable"]
        )
    assert provider.boots() == 3


async def test_a_cluster_that_refuses_machines_does_not_hold_them(tmp_path: Path) -> None:
    """Its operator has no credentials to give; another cluster gets the machine."""
    provider = MemoryProvider([machine("m-1")], auto_finish=True)
    async with shard(provider, tmp_path) as rig:
        broken = await rig.operator("broken", helpful=False)
        broken.refuses = "no such ServiceAccount"
        other = await rig.operator("other")
        await broken.roll_up(need(priority=100))
        await broken.receives(lambda m: m.bootstrap_request.request_id != "")
        await other.roll_up(need())
        await other.receives_state("m-1", _S.CONFIGURED)
        await broken.receives(
            lambda m: [s.reason for s in m.demand_status.short] == ["ClusterSuspended"]
        )


async def test_nothing_more_is_bought_for_a_cluster_that_is_gone(tmp_path: Path) -> None:
    """After its absence nothing is acquired; what it has at work is left alone."""
    at_work = machine("m-1", _S.CONFIGURED, "gone")
    provider = MemoryProvider([at_work, speculative("m-2", 0.1)], auto_finish=True)
    async with shard(provider, tmp_path, clock=SystemClock(), cluster_absence_seconds=0.0) as rig:
        operator = await rig.operator("gone", helpful=False)
        await operator.roll_up(need(1))
        await operator.leave()
        await eventually(lambda: rig.shard.sessions.of("gone") is None)
        await cycles(rig, 3)
        provider.report(replace(at_work, state=_S.FAILED, last_error="disk"))
        await cycles(rig, 10)
    assert "CREATE" not in [call for call, *_ in provider.orders]


def _fails_to_boot(back_off: FailureBackOff, name: str, cluster: str, now: float) -> None:
    gone = Transition(name, _S.CONFIGURING, _S.FAILED, cluster, "", "not Ready")
    back_off.follow(gone, Flavour({}, CapacityType.ON_DEMAND, 1.0, 0.0, {}), now)


def _joins(back_off: FailureBackOff, name: str, cluster: str, now: float) -> None:
    joined = Transition(name, _S.CONFIGURING, _S.CONFIGURED, cluster, cluster, "")
    back_off.follow(joined, Flavour({}, CapacityType.ON_DEMAND, 1.0, 0.0, {}), now)


def test_a_cluster_without_ready_machines_keeps_no_offering_from_others() -> None:
    """Neither by its many failures, after another cluster had one, nor while it waits for its next
    attempt.
    """
    back_off, now = FailureBackOff(), 0.0
    _fails_to_boot(back_off, "m-0", "sound", now)
    for number in range(40):
        now += 1000.0
        _fails_to_boot(back_off, f"m-{number}", "broken", now)
    assert back_off.clusters(now + 1.0) == {"broken"}
    assert back_off.offerings(now + 1.0) == {}


def _in_backoff(back_off: FailureBackOff, now: float, name: str) -> list[str]:
    """The clusters that do not get the idle machine `name` now."""
    clusters = ("broken", "sound", "other")
    specs = [idle(name), *(configured(cluster, cluster) for cluster in clusters)]
    fleet, row = fleet_of(specs), np.zeros(1, np.intp)

    def places(names: Sequence[str]) -> Ints:
        return np.array([0 if each == name else NONE for each in names], np.int32)

    seen = back_off.apply_to(fleet, places, now)
    return [each for each in clusters if seen.backs_off(fleet.clusters.index(each), row).any()]


def test_a_cluster_without_ready_machines_is_tried_with_another_machine_each_time() -> None:
    """Else one that never boots, if it is the cheapest, would fail each of its attempts, also once
    the cluster is in order again.
    """
    back_off, now = FailureBackOff(), 0.0
    for number in range(6):
        _fails_to_boot(back_off, f"m-{number}", "broken", now := now + 4000.0)
    assert back_off.clusters(now + 119.0) == {"broken"}
    assert not back_off.clusters(now + 121.0)
    assert _in_backoff(back_off, now + 121.0, "m-4") == []
    assert _in_backoff(back_off, now + 121.0, "m-5") == ["broken"]
    _joins(back_off, "m-6", "broken", now + 125.0)
    assert _in_backoff(back_off, now + 126.0, "m-5") == []


def test_what_fails_in_a_cluster_without_ready_machines_is_kept_from_no_other() -> None:
    """However often that tries it: it is not known to be broken."""
    back_off, now = FailureBackOff(), 0.0
    for number in range(5):
        _fails_to_boot(back_off, f"m-{number}", "broken", now := now + 4000.0)
    _fails_to_boot(back_off, "m-9", "sound", now := now + 4000.0)
    _fails_to_boot(back_off, "m-9", "broken", now := now + 10.0)
    assert _in_backoff(back_off, now + 1.0, "m-9") == ["broken", "sound"]
    for _ in range(3):
        _fails_to_boot(back_off, "m-9", "broken", now := now + 1000.0)
        assert _in_backoff(back_off, now + 1.0, "m-9") == ["broken"]


def test_a_cluster_that_can_try_few_machines_keeps_none_from_others() -> None:
    """Three different ones have failed there in a row; this one failed once elsewhere, long ago."""
    back_off = FailureBackOff()
    for now, (name, cluster) in enumerate(
        [("m-9", "sound"), ("m-1", "broken"), ("m-2", "broken"), ("m-9", "broken")]
    ):
        _fails_to_boot(back_off, name, cluster, 100.0 * now)
    assert _in_backoff(back_off, 301.0, "m-9") == ["broken"]


def test_a_machine_that_fails_in_two_clusters_is_kept_from_all() -> None:
    """A third need not find out; as many failures in all delay the next attempt."""
    back_off = FailureBackOff()
    _fails_to_boot(back_off, "m-9", "sound", 0.0)
    assert _in_backoff(back_off, 1.0, "m-9") == ["sound"]
    _fails_to_boot(back_off, "m-9", "other", 10.0)
    assert _in_backoff(back_off, 129.0, "m-9") == ["broken", "sound", "other"]
    assert _in_backoff(back_off, 131.0, "m-9") == []


def test_an_offering_that_boots_in_no_cluster_is_in_backoff() -> None:
    """Each of the clusters has other machines that work."""
    back_off = FailureBackOff()
    for number, cluster in enumerate(("east", "west", "east", "west")):
        _fails_to_boot(back_off, f"m-{number}", cluster, number * 100.0)
    assert len(back_off.offerings(301.0)) == 1


def test_a_machine_that_never_boots_is_not_excused_by_its_own_failures() -> None:
    """As often as it fails in a cluster, the cluster is not to blame for it."""
    back_off, now = FailureBackOff(), 0.0
    for _ in range(8):
        now += 4000.0
        _fails_to_boot(back_off, "m-0", "east", now)
    assert not back_off.clusters(now + 1.0)
    assert len(back_off.offerings(now + 1.0)) == 1


def test_a_boot_that_is_first_seen_once_it_has_failed_counts() -> None:
    """The answer to its order was lost, and the machine was still idle when it was last listed."""
    back_off = FailureBackOff()
    flavour = Flavour({}, CapacityType.ON_DEMAND, 1.0, 0.0, {})
    for number in range(2):
        missed = Transition(f"m-{number}", _S.IDLE, _S.FAILED, "", "east", "not Ready")
        back_off.follow(missed, flavour, 100.0 * number)
    assert len(back_off.offerings(101.0)) == 1
    back_off.follow(Transition("m-2", _S.IDLE, _S.FAILED, "", "", "disk"), flavour, 200.0)
    assert not back_off.clusters(201.0)
