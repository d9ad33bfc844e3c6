"""What an administrator bounds by cluster: priority, machines and dollars an hour."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bigfleet.adapters.provider.memory import MemoryProvider
from bigfleet.api.v1alpha1.shard_pb2 import NeedStatus
from bigfleet.commands import shard_queries
from bigfleet.model.errors import InvalidInput, UnknownObject
from bigfleet.model.group import PodGroup
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Need, Operator, Requirement, profile, sizes_of
from bigfleet.observe.metrics import REGISTRY
from tests.support.shard_rig import CPU_PER_MACHINE, FakeOperator, Rig, cycles, machine, need, shard
from tests.support.waiting import eventually

_S = MachineState
_HIGHEST = 2_000_000_000


def state(text: str, path: Path) -> Path:
    """Put the ceilings into the file as an administrator does: at one stroke."""
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)
    return path


def fleet(idle: int) -> MemoryProvider:
    """So many idle machines for $0.20 an hour each."""
    return MemoryProvider([machine(f"m-{number}") for number in range(idle)], auto_finish=True)


def held(rig: Rig, cluster: str) -> int:
    """How many machines are in the cluster's service."""
    return sum(m.state is _S.CONFIGURED for m in rig.shard.inventory.bound_to(cluster))


async def told_short(operator: FakeOperator) -> NeedStatus:
    """The first thing that is said to be short for want of a higher ceiling."""
    message = await operator.receives(
        lambda m: [s.reason for s in m.demand_status.short] == ["CeilingReached"]
    )
    (short,) = message.demand_status.short
    return short


async def test_the_highest_priority_from_a_cluster_with_ceiling_0_evicts_nobody_elsewhere(
    tmp_path: Path,
) -> None:
    """It is told why; once its ceiling allows it, it does."""
    path = state("default: {priority: 0}", tmp_path / "ceilings.yaml")
    provider = fleet(1)
    async with shard(provider, tmp_path, ceilings=path) as rig:
        victim, greedy = await rig.operator("victim"), await rig.operator("greedy")
        await victim.roll_up(need())
        await eventually(lambda: held(rig, "victim") == 1)
        await greedy.roll_up(need(priority=_HIGHEST))
        short = await told_short(greedy)
        assert f"its priority {_HIGHEST} is limited to 0" in short.message
        said = await shard_queries.ask(rig.address, shard_queries.need_query("greedy"))
        assert f"priority {_HIGHEST} (capped at 0 by its cluster's ceiling)" in said.as_text()
        await cycles(rig, 10)
        assert [order for order, *_ in provider.orders] == ["CONFIGURE"]
        assert not any(m.reclaim_instruction.instruction_id for m in victim.received)
        state("{default: {priority: 0}, clusters: {greedy: {priority: unlimited}}}", path)
        await eventually(lambda: held(rig, "greedy") == 1)


@pytest.mark.parametrize(
    ("ceiling", "most", "words"),
    [
        ("machines: 3", 3, "it has 3 of at most 3 machines"),
        ("dollarsPerHour: 0.65", 3, "it has machines for $0.60 of at most $0.65 an hour"),
    ],
)
async def test_a_cluster_gets_no_more_than_its_ceiling_is_told_why_and_served_when_it_is_raised(
    tmp_path: Path, ceiling: str, most: int, words: str
) -> None:
    """Others are served meanwhile with what it may not have."""
    path = state(f"clusters: {{east: {{{ceiling}}}}}", tmp_path / "ceilings.yaml")
    async with shard(fleet(7), tmp_path, ceilings=path) as rig:
        east, west = await rig.operator("east"), await rig.operator("west")
        await east.roll_up(need(5, priority=9))
        short = await told_short(east)
        assert words in short.message
        await west.roll_up(need(2))
        await eventually(lambda: (held(rig, "east"), held(rig, "west")) == (most, 2))
        said = await shard_queries.ask(rig.address, shard_queries.need_query("east"))
        assert words in said.as_text()
        await cycles(rig, 10)
        assert held(rig, "east") == most
        assert REGISTRY.get_sample_value("bigfleet_shard_needs_at_ceiling") == 1
        state("clusters: {}", path)
        await eventually(lambda: held(rig, "east") == 5)


async def test_a_ceiling_that_is_lowered_takes_nothing_away(tmp_path: Path) -> None:
    """What is held stays; nothing is added."""
    path, provider = state("{}", tmp_path / "ceilings.yaml"), fleet(6)
    async with shard(provider, tmp_path, ceilings=path) as rig:
        east = await rig.operator("east")
        await east.roll_up(need(3))
        await eventually(lambda: held(rig, "east") == 3)
        state("default: {priority: -5, machines: 1, dollarsPerHour: 0.1}", path)
        await east.roll_up(need(5))
        await told_short(east)
        await cycles(rig, 10)
        assert held(rig, "east") == 3
        assert {order for order, *_ in provider.orders} == {"CONFIGURE"}


async def test_of_a_gang_that_is_beyond_the_ceiling_nothing_is_bought(tmp_path: Path) -> None:
    """A plain need of its cluster gets what the ceiling leaves."""
    path = state("default: {machines: 3}", tmp_path / "ceilings.yaml")
    rack = profile((Requirement("topology.bigfleet/rack", Operator.SAME),), (), 9, 1, 1)
    gang = Need(rack, sizes_of([({"cpu": CPU_PER_MACHINE}, 4)]), PodGroup('["gang"]'))
    async with shard(fleet(7), tmp_path, ceilings=path) as rig:
        east = await rig.operator("east")
        await east.roll_up(gang)
        assert "at most 3 machines" in (await told_short(east)).message
        assert held(rig, "east") == 0
        await east.roll_up(gang, need(2))
        await eventually(lambda: held(rig, "east") == 2)
        state("default: {machines: 6}", path)
        await eventually(lambda: held(rig, "east") == 6)


async def test_a_file_that_becomes_bad_leaves_the_last_good_ceilings_in_force(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said once, in a metric for as long as it lasts, and the shard goes on."""
    path = state("default: {machines: 1}", tmp_path / "ceilings.yaml")
    rejected = "bigfleet_shard_ceilings_rejected"
    async with shard(fleet(3), tmp_path, ceilings=path) as rig:
        state("default: {machines: -4}", path)
        east = await rig.operator("east")
        await east.roll_up(need(3))
        await eventually(lambda: REGISTRY.get_sample_value(rejected) == 1)
        path.unlink()
        await told_short(east)
        await cycles(rig, 5)
        assert held(rig, "east") == 1
        wrong = [r.getMessage() for r in caplog.records if "ceilings" in r.getMessage()]
        assert len(wrong) == 2
        assert "default: machines: -4 is neither a whole number >= 0" in wrong[0]
        state("default: {machines: 2}", path)
        await eventually(lambda: held(rig, "east") == 2)
        assert REGISTRY.get_sample_value(rejected) == 0


async def test_a_shard_whose_ceilings_cannot_be_read_does_not_start(
    tmp_path: Path,
) -> None:
    """Without its ceilings it would let clusters have everything."""
    with pytest.raises(InvalidInput, match=r"nowhere\.yaml.* cannot be read"):
        async with shard(fleet(1), tmp_path, ceilings=tmp_path / "nowhere.yaml"):
            pass


async def test_what_ceilings_hold_back_is_listed_by_cluster(tmp_path: Path) -> None:
    """Which ceiling it is, what there is beneath it and what waits; whom none bounds is only
    counted, unless somebody asks for that cluster.
    """
    path = state(
        "{default: {machines: 3}, clusters: {lowly: {priority: 5, machines: unlimited},"
        " free: {machines: unlimited}, dear: {dollarsPerHour: 0.5}}}",
        tmp_path / "ceilings.yaml",
    )
    async with shard(fleet(9), tmp_path, ceilings=path) as rig:
        names = ("east", "west", "lowly", "free", "dear")
        operators = {name: await rig.operator(name) for name in names}
        await operators["free"].roll_up(need(1))
        await operators["west"].roll_up(need(1))
        await operators["lowly"].roll_up(need(1, priority=9))
        await operators["dear"].roll_up(need(3))
        await operators["east"].roll_up(need(2), need(4, group="[1]"))
        served = dict(zip(names, (3, 1, 1, 1, 2), strict=True))
        await eventually(lambda: {name: held(rig, name) for name in names} == served)
        await cycles(rig, 3)
        said = await shard_queries.ask(rig.address, shard_queries.ceilings_query(""))
        assert said.lines == [
            "Cluster dear:",
            "  It has 2 of at most 3 machines.",
            "  Its machines cost $0.40 of at most $0.50 an hour.",
            "  1 need with 1 pod short of machines because of it:",
            f"    1 pod of need dear/{need().key[0]}, priority 0",
            "Cluster east:",
            "  It has 3 of at most 3 machines.",
            "  1 need with 3 pods short of machines because of it:",
            f"    3 pods of need east/{need().key[0]}/[1], priority 0",
            "Cluster lowly:",
            "  Its priorities are capped at 5; 1 of its needs request more.",
            "1 other cluster is below its ceiling.",
        ]
        assert [each["cluster_id"] for each in said.data["ceilings"]] == [
            "dear",
            "east",
            "lowly",
            "west",
        ]
        west = await shard_queries.ask(rig.address, shard_queries.ceilings_query("west"))
        assert west.lines == ["Cluster west:", "  It has 1 of at most 3 machines."]
        with pytest.raises(UnknownObject, match="cluster free has no ceiling there"):
            await shard_queries.ask(rig.address, shard_queries.ceilings_query("free"))


async def test_where_nobody_has_a_ceiling_that_is_what_is_said(tmp_path: Path) -> None:
    async with shard(fleet(1), tmp_path) as rig:
        await (await rig.operator()).roll_up(need(3))
        await cycles(rig, 3)
        said = await shard_queries.ask(rig.address, shard_queries.ceilings_query(""))
        assert said.as_text() == "No cluster that this shard serves has a ceiling."
