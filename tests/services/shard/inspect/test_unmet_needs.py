"""A run asks the live shard which needs it cannot cover, and why."""

from __future__ import annotations

from pathlib import Path

from bigfleet.adapters.provider.memory import MemoryProvider
from bigfleet.model.need import Need, Operator, Requirement, profile
from loaddriver.judge.facts import Shortfall
from loaddriver.run.scrape import unmet_counts, unmet_needs
from loaddriver.substrates.base import Endpoint
from tests.support.shard_rig import cycles, machine, need, shard


def of_type(name: str, machines: float) -> Need:
    """A need for machines of one instance type."""
    type_only = (Requirement("node.kubernetes.io/instance-type", Operator.IN, (name,)),)
    plain = need(machines)
    need_profile = profile(type_only, (), plain.profile.priority, 1, 1)
    return Need(need_profile, plain.sizes)


def endpoint(folder: Path, address: str) -> Endpoint:
    """A shard that serves there, without TLS."""
    return Endpoint("shard-0", None, folder, {"listen": address})


async def test_what_is_short_comes_with_its_types_its_amounts_and_the_shards_own_reason(
    tmp_path: Path,
) -> None:
    """Needs that are met are left out."""
    async with shard(MemoryProvider([machine("m-1")]), tmp_path) as rig:
        operator = await rig.operator()
        await operator.roll_up(need(1), of_type("gpu.huge", 2))
        await cycles(rig, 3)
        found = await unmet_needs([endpoint(tmp_path, rig.address)])
    assert found is not None
    (short,) = found
    assert (short.cluster, short.instance_types) == ("east", ("gpu.huge",))
    assert short.missing == {"cpu": "8"}
    assert "no machine of the fleet could ever serve it" in short.reason
    assert unmet_counts(found) == {
        "needsUnmetAtEnd": 1,
        "needsUnmetByReason": {"noMatchingSupply": 1},
    }


async def test_a_shard_that_does_not_answer_is_not_one_that_lacks_nothing(tmp_path: Path) -> None:
    assert await unmet_needs([endpoint(tmp_path, "127.0.0.1:1")]) is None
    assert await unmet_needs([Endpoint("shard-0", None, tmp_path)]) is None
    assert await unmet_needs([]) is None
    assert unmet_counts(None) == {"needsUnmetAtEnd": None}
    assert unmet_counts([]) == {"needsUnmetAtEnd": 0, "needsUnmetByReason": {}}


def test_reasons_are_counted_each_by_itself() -> None:
    def short(kind: str) -> Shortfall:
        return Shortfall("c1", (), {}, kind=kind)

    counted = unmet_counts([short("b"), short("a"), short("b")])
    assert counted == {"needsUnmetAtEnd": 3, "needsUnmetByReason": {"a": 1, "b": 2}}
