"""A wire profile is read strictly, and demand and machines follow from it."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bigfleet.api.need_codec import need_from_wire, need_to_wire
from bigfleet.model.group import PodGroup
from loaddriver.errors import ProfileError
from loaddriver.profile.loading import PROFILES
from loaddriver.wire.demand import needs_of_cluster
from loaddriver.wire.operators import change_counts
from loaddriver.wire.provider import inventory, machine_count
from loaddriver.wire.settings import WireProfile, load_wire_profile, wire_profile_names


def load(*overrides: str, name: str = "fleet-4k", profiles: Path = PROFILES) -> WireProfile:
    return load_wire_profile(name, profiles, overrides)


def errors(*overrides: str) -> str:
    with pytest.raises(ProfileError) as caught:
        load(*overrides)
    return str(caught.value)


@pytest.mark.parametrize("name", wire_profile_names(PROFILES))
def test_every_shipped_profile_is_valid(name: str) -> None:
    assert load(name=name).gates


def test_a_name_that_is_no_wire_profile_is_refused_with_those_that_are() -> None:
    with pytest.raises(ProfileError, match=r"no profile 'smoke' with a wire.yaml.*fleet-4k"):
        load(name="smoke")


def test_a_key_without_effect_is_an_error() -> None:
    assert "anchors unknown key" in errors("anchors=on")


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("distinctClusters=41", "distinctClusters = 41: there are only 40 clusters"),
        ("faults=[{role: c1/operator, atSeconds: 1, downSeconds: 1}]", "only shards: shard-0"),
        ("bigfleet.coordinators=0", "bigfleet.coordinators = 0: 2 shards need a coordinator"),
        ("bigfleet.leavingShard={shard: shard-1, atSeconds: 1}", "is not played on the wire"),
        ("soakSeconds=6", "ends 7 s into a soak of 6 s"),
    ],
)
def test_a_contradiction_is_named_by_its_key(override: str, text: str) -> None:
    assert text in errors(override)


def test_gates_of_a_profile_are_needed(tmp_path: Path) -> None:
    shutil.copytree(PROFILES / "fleet-4k", tmp_path / "fleet-4k")
    shutil.copy(PROFILES / "catalog.yaml", tmp_path)
    (tmp_path / "fleet-4k" / "expect.yaml").unlink()
    with pytest.raises(ProfileError, match=r"fleet-4k/expect.yaml: cannot be read"):
        load(profiles=tmp_path)


def test_a_cluster_requests_exactly_its_pods() -> None:
    profile = load()
    for cluster in range(profile.settings.distinct_clusters):
        needs = needs_of_cluster(profile.distinct, cluster)
        pods = sum(size.pods for need in needs for size in need.sizes)
        assert pods == profile.settings.pods_per_cluster
        assert len({need.key for need in needs}) == len(needs)


def test_each_gang_and_each_workload_with_hard_spread_is_a_need_of_its_own() -> None:
    needs = needs_of_cluster(load().distinct, 0)
    gangs = [need for need in needs if need.profile.same_key is not None]
    spread = [need for need in needs if any(each.hard for each in need.profile.spread)]
    assert gangs
    assert spread
    assert all(isinstance(need.group, PodGroup) for need in (*gangs, *spread))


def test_needs_survive_the_wire() -> None:
    for need in needs_of_cluster(load().distinct, 1):
        assert need_from_wire(need_to_wire(need), "need") == need


def test_the_fleet_has_machines_for_all_clusters_in_equal_parts_of_whole_racks() -> None:
    profile = load()
    machines = inventory(profile)
    assert len({machine.id for machine in machines}) == len(machines) == machine_count(profile)
    per_cluster = len(machines) / profile.settings.clusters
    twice = machine_count(load("clusters=80"))
    assert twice == pytest.approx(2 * len(machines), abs=2 * per_cluster)
    of_second_shard = Counter(m.instance_type for m in machines if m.rack.endswith("-1"))
    of_first_shard = Counter(m.instance_type for m in machines if not m.rack.endswith("-1"))
    assert of_first_shard == of_second_shard


class Chosen(random.Random):
    """Counts what is chosen."""

    total = 0

    def sample(self, *args: Any, **kwargs: Any) -> list[Any]:
        chosen = super().sample(*args, **kwargs)
        self.total += len(chosen)
        return chosen


def test_a_share_of_the_plain_needs_changes_and_none_that_comes_as_a_whole() -> None:
    needs = [need_to_wire(need) for need in needs_of_cluster(load().distinct, 0)]
    pods, changing = sum(sum(need.sizes.counts) for need in needs), Chosen(1)
    change = change_counts(0.05)
    touched: Counter[int] = Counter()
    for _ in range(200):
        before = [need.SerializeToString() for need in needs]
        change(needs, changing)
        touched.update(n for n, need in enumerate(needs) if need.SerializeToString() != before[n])
    assert changing.total == pytest.approx(200 * 0.05 * len(needs), rel=0.2)
    # Of needs with few pods many a change is rounded away.
    assert 0 < touched.total() <= changing.total
    assert not any(needs[at].group for at in touched)
    assert pods != sum(sum(need.sizes.counts) for need in needs)
