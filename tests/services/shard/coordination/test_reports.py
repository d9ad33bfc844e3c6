"""The shard's report to the coordinator, and its size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from bigfleet.adapters.provider.memory import MemoryProvider
from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.commands import fleet_views as views
from bigfleet.engine.snapshot import Flavour, Fleet
from bigfleet.model.domain import Domain
from bigfleet.model.group import PodGroup
from bigfleet.model.labels import RACK_LABEL
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.model.need import Operator, Requirement, profile
from bigfleet.model.report_limits import MAX_MOVABLE_DOMAINS, MAX_UNOWNED_DOMAINS
from bigfleet.services.shard.coordination import report
from bigfleet.services.shard.coordination.domain_observations import (
    MAX_REPEATED_DOMAINS,
    RESEND_INTERVAL_SECONDS,
    DomainObservations,
)
from tests.support.fake_coordinator import FakeCoordinator, rack
from tests.support.shard_rig import machine, need, shard
from tests.support.waiting import eventually

_FEW_BYTES = 240


def big_fleet(types: int, machines: int) -> Fleet:
    """This many machines of this many types in ten zones."""
    flavours = [
        Flavour(
            labels={
                "node.kubernetes.io/instance-type": f"m7i.{number}xlarge",
                "topology.kubernetes.io/zone": f"europe-west-{number % 10}",
            },
            capacity_type=CapacityType.ON_DEMAND,
            price_per_hour=1.0,
            interruption_probability=0.0,
            allocatable={"cpu": 4000},
        )
        for number in range(types)
    ]
    none = np.zeros(machines, np.int32)
    return Fleet(
        flavours=flavours,
        clusters=(),
        flavour=(np.arange(machines) % types).astype(np.int32),
        state=np.full(machines, MachineState.IDLE, np.uint8),
        cluster=none - 1,
        last_claimed_by=none - 1,
        destination=none - 1,
        headroom=none > 0,
        disruption_cost=none.astype(np.float64),
        priority=none,
        interruption_bucket=none.astype(np.uint8),
        reclamation_bucket=none.astype(np.uint8),
        unused_since_seconds=none.astype(np.float64),
        tie_break=np.arange(machines),
    )


def test_a_summary_is_small_and_adds_up_however_many_types_there_are() -> None:
    """Some 240 bytes; types that are not listed are counted together."""
    summary = report.summary(big_fleet(types=400, machines=100_000))
    assert summary.ByteSize() <= _FEW_BYTES
    assert summary.total_machines == summary.free_machines == 100_000
    assert sum(summary.per_instance_type_counts.values()) == 100_000
    assert sum(summary.per_zone_counts.values()) == 100_000


class _Watched(dict[Domain, Counter[str]]):
    """Counts how often all of it is looked at."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)
        self.looks = 0

    def __iter__(self) -> Iterator[Domain]:
        self.looks += 1
        return super().__iter__()


def test_domains_that_have_not_changed_are_not_looked_at_again() -> None:
    """A shard sees all racks of a fleet, and reports every two seconds."""
    seen = _Watched({rack(f"rack-{n}"): Counter({"m7i.large": 40}) for n in range(1500)})
    observations = DomainObservations()
    owned: frozenset[Domain] = frozenset({rack("rack-0")})
    first = observations.due(seen, owned, 0.0)
    observations.acknowledged(first, 1, 0.0)
    looks = seen.looks
    second = observations.due(seen, owned, 2.0)
    observations.acknowledged(second, 1, 2.0)
    assert len({each.topology_value for each in (*first, *second)}) == 1499
    assert observations.due(seen, owned, 4.0) == []
    assert seen.looks == looks
    assert len(observations.due(seen, frozenset(), 4.0)) == 1
    assert seen.looks == looks + 1


async def test_a_report_carries_a_hundred_shortfalls_and_counts_the_others(tmp_path: Path) -> None:
    """The most urgent ones; the number of the others is reported."""
    coordinator = FakeCoordinator()
    async with shard(MemoryProvider(), tmp_path, None, coordinator, shard_id="s-0") as one:
        east = await one.operator("east")
        await east.roll_up(*(need(1, priority=number) for number in range(130)))
        await eventually(lambda: coordinator.reports["s-0"].shortfalls_omitted == 30)
    acknowledged = coordinator.reports["s-0"]
    assert sorted(each.priority for each in acknowledged.shortfalls) == list(range(30, 130))


async def test_a_domain_that_needs_want_whole_and_that_is_split_over_shards_is_told(
    tmp_path: Path,
) -> None:
    """No shard may ever have enough of it, and each would only see a need that waits. What nobody
    asks for may be split as it likes.
    """
    coordinator = FakeCoordinator()
    coordinator.owners[rack("rack-2")] = "another"
    labels = {"topology.bigfleet/rack": "rack-2", "kubernetes.io/hostname": "m-2"}
    fleet = [machine("m-1"), machine("m-2", labels=labels)]
    same = (Requirement("topology.kubernetes.io/zone", Operator.SAME, ()),)
    gang = replace(need(3), profile=profile(same, (), 0, 1, 1), group=PodGroup('["g"]'))
    async with shard(MemoryProvider(fleet), tmp_path, None, coordinator, shard_id="s-0") as one:
        east = await one.operator("east")
        await eventually(lambda: coordinator.reports["s-0"].owned_domains == 1)
        await east.roll_up(need())
        await eventually(lambda: bool(coordinator.reports["s-0"].summary.total_machines))
        assert not coordinator.reports["s-0"].splits
        await east.roll_up(gang)
        await eventually(lambda: bool(coordinator.reports["s-0"].splits))
        await eventually(lambda: bool(coordinator.reports["s-0"].shortfalls))
    acknowledged = coordinator.reports["s-0"]
    assert [(s.topology_key, s.topology_value) for s in acknowledged.splits] == [
        ("topology.kubernetes.io/zone", "a")
    ]
    assert acknowledged.shortfalls[0].count > 0
    snapshot = wire.ShardReportSnapshot(shard_id="s-0", splits=acknowledged.splits)
    *_, split, asking, hint = views.status("a:1", 2, views.Lists([], [snapshot], [], []))
    assert split.startswith("warning      a (topology.kubernetes.io/zone): split across shards")
    assert "needs of s-0 that require it whole may wait" in asking
    assert "assign its domains to one shard" in hint


def test_unowned_domains_are_reported_in_batches_and_again_later() -> None:
    """At most a thousand at once, unreported ones first; an undelivered batch is due again. Few
    are repeated at once, each of them in turn.
    """
    seen = {Domain("rack", f"{number}"): Counter(m5=3) for number in range(2500)}
    owned, observations = {Domain("rack", "0")}, DomainObservations()
    assert len(observations.due(seen, owned, 100.0)) == MAX_UNOWNED_DOMAINS
    acknowledged: set[str] = set()
    for _ in range(3):
        portion = observations.due(seen, owned, 100.0)
        acknowledged |= {each.topology_value for each in portion}
        observations.acknowledged(portion, 1, 100.0)
    assert len(acknowledged) == 2499
    assert observations.due(seen, owned, 100.0 + RESEND_INTERVAL_SECONDS - 1) == []
    repeated: list[str] = []
    for number in range(25):
        now_seconds = 100.0 + RESEND_INTERVAL_SECONDS + number
        portion = observations.due(seen, owned, now_seconds)
        assert len(portion) <= MAX_REPEATED_DOMAINS
        observations.acknowledged(portion, 1, now_seconds)
        repeated += [each.topology_value for each in portion]
    assert len(repeated) == 2499
    assert set(repeated) == acknowledged


def test_of_very_many_domains_each_is_soon_repeated_by_some_shard() -> None:
    """Not the same ones by all shards, of which none has to repeat all of them."""
    seen = {Domain("rack", f"{number}"): Counter(m5=3) for number in range(4000)}
    of_shards = [DomainObservations(f"s-{number}") for number in range(20)]
    repeated: set[str] = set()
    for each in of_shards:
        for _ in range(4):
            each.acknowledged(each.due(seen, set(), 100.0), 1, 100.0)
        for number in range(10):
            portion = each.due(seen, set(), 200.0 + number)
            each.acknowledged(portion, 1, 200.0 + number)
            repeated |= {domain.topology_value for domain in portion}
    assert len(repeated) > 3600


def test_a_new_leader_gets_every_unowned_domain() -> None:
    """It may lack what the previous leader received."""
    seen, observations = (
        {Domain("rack", name): Counter(m5=1) for name in "ab"},
        DomainObservations(),
    )
    observations.acknowledged(observations.due(seen, set(), 0.0), 1, 0.0)
    assert observations.due(seen, set(), 1.0) == []
    observations.acknowledged([], 2, 1.0)
    assert len(observations.due(seen, set(), 1.0)) == 2


def test_a_domain_is_reported_with_its_most_common_instance_type() -> None:
    """Whatever order its machines were seen in."""
    for counts in (Counter(b=2, a=2, c=1), Counter(c=1, a=2, b=2)):
        [acknowledged] = DomainObservations().due({Domain("rack", "r"): counts}, set(), 0.0)
        assert (acknowledged.machines, acknowledged.instance_type) == (5, "a")


def test_domains_of_every_instance_type_can_move_however_many_types_there_are() -> None:
    """A list cut by name would leave a shard that joins without any machine of the last types."""
    types = [f"t{number:02}" for number in range(30)]
    machines = {
        Domain(RACK_LABEL, f"{name}-{rack}"): {name: 8} for name in types for rack in range(6)
    }
    in_use = {domain: 6 - int(domain.value[-1]) for domain in machines}
    found = [each.topology_value for each in report.movable_domains(machines, in_use)]
    assert len(found) == MAX_MOVABLE_DOMAINS
    assert {value.split("-")[0] for value in found} == set(types)
    assert found[:2] == ["t00-5", "t01-5"]
