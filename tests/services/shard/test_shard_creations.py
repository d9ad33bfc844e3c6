"""Machines that are being created are for somebody, whoever asks: what they are for outlives the
shard that ordered them, and goes with their domain.
"""

from __future__ import annotations

from pathlib import Path

from shard_rig import cycles, eventually, machine, need, shard, states

from bigfleet.adapters.provider.memory import MemoryProvider
from bigfleet.model.machine import MachineState

_S = MachineState


def shop(count: int = 6) -> MemoryProvider:
    """So many machines for sale; what is ordered ends when the test says so."""
    return MemoryProvider([machine(f"m-{number}", _S.SPECULATIVE) for number in range(count)])


def bought(provider: MemoryProvider) -> list[str]:
    """The machines that were ordered."""
    return [machine_id for kind, machine_id in states(provider.orders) if kind == "CREATE"]


async def test_a_restarted_shard_does_not_buy_again_what_is_being_created(tmp_path: Path) -> None:
    """Its former life asked for three machines, and was killed before they were there."""
    provider, wanted = shop(), need(3, priority=7, group="default/app=db")
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        await operator.roll_up(wanted)
        await eventually(lambda: len(bought(provider)) == 3)
    first = bought(provider)
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        await operator.roll_up(wanted)
        await cycles(rig, 10)
        assert bought(provider) == first
        view = rig.shard.inventory.view(first[0])
        assert view is not None
        assert view.need == ("east", wanted.profile.fingerprint, "default/app=db")
        for machine_id in first:
            provider.finish(machine_id)
        await eventually(lambda: len(provider.blobs) == 3)
    assert sorted(provider.blobs) == sorted(first)


async def test_a_machine_that_is_created_after_a_restart_is_not_given_to_another_need(
    tmp_path: Path,
) -> None:
    """What it is for is known before any operator has said anything; others buy their own."""
    provider = shop()
    async with shard(provider, tmp_path) as rig:
        await (await rig.operator("east")).roll_up(need())
        await eventually(lambda: len(bought(provider)) == 1)
    async with shard(provider, tmp_path) as rig:
        await (await rig.operator("west")).roll_up(need())
        await (await rig.operator("east")).roll_up(need())
        await eventually(lambda: len(bought(provider)) == 2)
        await cycles(rig, 5)
        for machine_id in bought(provider):
            provider.finish(machine_id)
        await eventually(lambda: len(provider.blobs) == 2)
        await cycles(rig, 5)
    assert len(bought(provider)) == 2
