"""Rules of the coordinator that need no store."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from grpc import StatusCode
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.adapters.coordination.etcd_member import EtcdMemberConfig, command_line
from bigfleet.api.grpc_status import CODES
from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.commands import fleet_views
from bigfleet.model.domain import domain_of, region_of
from bigfleet.model.errors import Fenced, InvalidInput, UnknownObject
from bigfleet.model.labels import RACK_LABEL, REGION_LABEL, ZONE_LABEL
from bigfleet.services.coordinator import (
    acknowledgements,
    clusters,
    quotas,
    shards,
    snapshot,
    validation,
)
from bigfleet.services.coordinator.domain_lifecycle import DomainState
from bigfleet.services.coordinator.instructions import pending
from bigfleet.services.coordinator.registry import Registry
from bigfleet.services.coordinator.reports import Reports
from bigfleet.services.coordinator.rows import Cluster, Domain, Quota, Shard, TermBase, put
from tests.support.fake_shard import FakeShard, many_shortfalls


def known(*rows: Shard | Cluster | Domain | Quota) -> Registry:
    registry = Registry()
    registry.apply(put(*rows))
    return registry


def shard(name: str, epoch: int = 1, **more: Any) -> Shard:
    return Shard(name, "127.0.0.1:7780", epoch, 0, **more)


def test_an_unknown_shard_registers_itself() -> None:
    registry = Registry()
    registry.apply(shards.registered(registry, FakeShard("s1", epoch=4).report(), 99))
    assert registry.shards["s1"] == Shard("s1", "127.0.0.1:7780", 4, 99)


def test_a_report_of_an_earlier_start_is_stale() -> None:
    """A stale process is rejected; the error names the newer epoch."""
    with pytest.raises(Fenced, match="epoch 4 has been replaced by epoch 5"):
        shards.registered(known(shard("s1", 5)), FakeShard("s1", epoch=4).report(), 0)


@pytest.mark.parametrize(("owned", "harmless"), [(0, True), (1, False)])
def test_a_removed_shard_that_owns_nothing_has_only_left(owned: int, harmless: bool) -> None:
    """Its reports are no incident; those of one that was removed as dead, and still owns, are."""
    registry, report = known(shard("s1", removed=True)), FakeShard("s1").report()
    report.owned_domains = owned
    with pytest.raises(Fenced) as rejected:
        shards.registered(registry, report, 0)
    assert isinstance(rejected.value, shards.HasLeft) == harmless


def test_a_removed_shard_stays_fenced() -> None:
    registry = known(shard("s1", removed=True))
    with pytest.raises(Fenced, match="was removed"):
        shards.registered(registry, FakeShard("s1", epoch=9).report(), 0)


def test_two_processes_with_one_epoch_are_told_apart_by_address() -> None:
    registry = known(shard("s1"))
    with pytest.raises(InvalidInput, match="share one state directory"):
        shards.registered(registry, FakeShard("s1", port=9999).report(), 0)


def test_the_first_live_shard_defines_a_provider() -> None:
    """Otherwise two shards that disagree would overwrite each other with every report."""
    registry = known(shard("s1"), shard("s2"))
    registry.apply(shards.providers_seen(registry, FakeShard("s1").report(), ["s1", "s2"]))
    other = FakeShard("s2").report()
    other.providers[0].address = "10.0.0.1:1"
    assert shards.providers_seen(registry, other, ["s1", "s2"]) == {}
    registry.apply(shards.providers_seen(registry, other, ["s2"]))
    assert registry.providers["kwok", "r"].address == "10.0.0.1:1"


def test_a_cluster_stays_with_the_shard_of_its_first_contact() -> None:
    registry = known(shard("s1"), shard("s2"))
    registry.apply(clusters.assign(registry, clusters.resolve(registry, "c", "s1", [])))
    for asking in ("s2", ""):
        assert clusters.resolve(registry, "c", asking, ["s1", "s2"]).shard == "s1"


def owning(machines: Mapping[str, int]) -> Registry:
    """Shards with these numbers of machines."""
    rows = [
        Domain("rack", name, name, DomainState.OWNED, "", machines=count)
        for name, count in machines.items()
    ]
    return known(*map(shard, machines), *rows)


def test_new_clusters_go_to_the_shard_with_the_most_machines_per_cluster() -> None:
    """Also when all operators contact the same shard first; one without machines gets none."""
    registry = owning({"s1": 10, "s2": 20, "s3": 0})
    for number in range(6):
        row = clusters.resolve(registry, f"c{number}", "s1", ["s1", "s2", "s3"])
        registry.apply(clusters.assign(registry, row))
    loads = [registry.load(name).clusters for name in ("s1", "s2", "s3")]
    assert loads == [2, 4, 0]


def test_clusters_spread_over_shards_without_machines() -> None:
    """In a new fleet, the first clusters connect before domains are assigned."""
    registry = owning({"s1": 0, "s2": 0})
    first = clusters.resolve(registry, "c1", "s2", ["s1", "s2"])
    assert first.shard == "s2"
    registry.apply(clusters.assign(registry, first))
    assert clusters.resolve(registry, "c2", "s2", ["s1", "s2"]).shard == "s1"


def test_a_lookup_assigns_no_shard() -> None:
    with pytest.raises(UnknownObject, match="not served by any shard"):
        clusters.resolve(known(shard("s1")), "c", "", ["s1"])


def test_a_shard_that_leaves_gets_no_new_clusters() -> None:
    registry = known(shard("s1", leaving=True), shard("s2"), shard("s3"), Cluster("x", "s2"))
    assert clusters.resolve(registry, "c", "s1", ["s1", "s2", "s3"]).shard == "s3"


@given(st.text(max_size=260), st.text(max_size=260), st.text(max_size=260))
def test_whatever_a_provider_calls_a_rack_its_shard_reports_a_valid_name(
    rack: str, zone: str, region: str
) -> None:
    """A single odd label would otherwise have the reports of all shards rejected, whole."""
    labels = {RACK_LABEL: rack, ZONE_LABEL: zone, REGION_LABEL: region}
    report = FakeShard("s1").report()
    key, value = domain_of(labels)
    report.unowned_domains.add(topology_key=key, topology_value=value, machines=1)
    report.providers[0].region = region_of(labels)
    validation.report(report)


def test_a_quota_reaches_every_shard_and_means_none_for_those_it_does_not_name() -> None:
    registry = known(shard("s1"), shard("s2"))
    quota = wire.QuotaAllocation(provider="kwok", region="r", per_shard={"s1": 5})
    registry.apply(quotas.replaced(registry, quota, lambda: "1-1"))
    for name, machines in (("s1", 5), ("s2", 0)):
        [told] = pending(registry, name, (), ())
        assert told.quota_slice.machines == machines
        assert pending(registry, name, {told.instruction_id}, ()) == []


def test_of_all_quotas_accepted_only_the_current_one_is_remembered() -> None:
    """A quota that moves every few seconds would otherwise fill the leader's memory for ever."""
    registry, accepted = known(shard("s1")), {"1-7/again", "1-7"}
    for number in range(3):
        quota = wire.QuotaAllocation(provider="kwok", per_shard={"s1": number})
        registry.apply(quotas.replaced(registry, quota, lambda at=number: f"2-{at}"))  # type: ignore[misc]
        [told] = pending(registry, "s1", accepted, ())
        accepted = acknowledgements.remembered(registry, "s1", {*accepted, told.instruction_id})
        assert accepted == {"1-7/again", told.instruction_id}
        assert pending(registry, "s1", accepted, ()) == []


def test_a_quota_for_an_unknown_shard_is_rejected() -> None:
    quota = wire.QuotaAllocation(provider="kwok", per_shard={"s7": 5})
    with pytest.raises(UnknownObject, match="shard s7"):
        quotas.replaced(known(shard("s1")), quota, lambda: "1-1")


def test_a_sound_report_passes_and_its_summary_is_small() -> None:
    """About 240 bytes for a shard's summary: 200 shards stay below 50 KB."""
    report = FakeShard("s1").report()
    report.shortfalls.extend(many_shortfalls(100))
    validation.report(report)
    assert report.summary.ByteSize() <= 240


def test_shortfalls_that_a_report_left_out_are_shown_as_a_number() -> None:
    report = FakeShard("s1").report()
    report.shortfalls.extend(many_shortfalls(1))
    report.shortfalls_omitted = 30
    received = Reports(0.0).record(report, 1.0, 1)
    assert fleet_views.shortfalls([received.snapshot])[-1] == "and 30 more, omitted from reports"


def test_out_of_domain_machines_are_listed() -> None:
    """They are the exceptions to machines following their domain, so each is shown."""
    report = FakeShard("s1").report()
    report.out_of_domain_machines.add(
        machine_id="m-1", cluster_id="east", topology_key="rack", topology_value="r1"
    )
    report.out_of_domain_omitted = 4
    validation.report(report)
    received = Reports(0.0).record(report, 1.0, 1).snapshot
    head, row, more = fleet_views.out_of_domain_machines([received])
    assert head.split() == ["MACHINE", "CLUSTER", "SHARD", "DOMAIN"]
    assert row.split() == ["m-1", "east", "s1", "r1"]
    assert more == "and 4 more, omitted from reports"
    lists = fleet_views.Lists([], [received], [], [])
    assert any("5 in domains of other shards" in line for line in fleet_views.status("a", 1, lists))


def test_only_what_is_stale_is_failed_precondition() -> None:
    """A shard that receives it stops acting permanently, so it must mean nothing else."""
    stale = [kind for kind, code in CODES.items() if code is StatusCode.FAILED_PRECONDITION]
    assert stale == [Fenced]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda r: r.ClearField("shard_id"), "shard_id: '' is empty"),
        (lambda r: setattr(r, "shard_address", "nowhere"), "'nowhere' is not HOST:PORT"),
        (lambda r: setattr(r, "shard_epoch", 0), "shard_epoch: 0 is not > 0"),
        (lambda r: r.shortfalls.extend(many_shortfalls(101)), "101 exceeds the limit of 100"),
        (lambda r: setattr(r.summary, "free_machines", -1), "-1 is negative"),
        (lambda r: r.unowned_domains.add(topology_key="k"), "topology_value: '' is empty"),
        (lambda r: r.providers.add(name="p\n", address="h:1"), "has unprintable characters"),
    ],
)
def test_an_invalid_report_is_rejected_by_field(
    spoil: Callable[[wire.ShardReport], None], said: str
) -> None:
    report = FakeShard("s1").report()
    spoil(report)
    with pytest.raises(InvalidInput, match=said):
        validation.report(report)


def test_a_restored_snapshot_instructs_every_shard_again() -> None:
    """Terms continue above all that shards may have seen, so that they accept instructions."""
    owned = Domain("k", "v", "s1", DomainState.OWNED, "7-1", machines=3)
    registry = known(shard("s1"), Cluster("c", "s1"), owned)
    data = snapshot.data_of(registry.rows)
    content = b"".join((_line(snapshot.meta_of(data, 7, 0)), data))
    _, rows = snapshot.restored("f", content)
    again = Registry()
    again.apply(dict(rows))
    assert again.domains["k", "v"].state is DomainState.ASSIGNING
    assert again.domains["k", "v"].instruction_id != "7-1"
    assert again.term_base > 7
    assert (again.shards, again.clusters) == (registry.shards, registry.clusters)
    assert isinstance(rows["term-base"], TermBase)


def _line(meta: snapshot.Meta) -> bytes:
    return msgspec.json.encode(meta) + b"\n"


def _sealed(data: bytes) -> bytes:
    return _line(snapshot.meta_of(data, 7, 0)) + data


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda c: c[:-3], "damaged or truncated"),
        (lambda c: c.replace(b"s1", b"s2", 1), "damaged or truncated"),
        (lambda _: b"something else\n", "is not a snapshot"),
        (lambda c: c.replace(b"snapshot/1", b"snapshot/9"), "only bigfleet-coordinator"),
        (lambda c: c.replace(b'"rows":1', b'"rows":0'), "has 1 rows, and its first line says 0"),
        (lambda _: _sealed(b'["shard/s1",{"id":7}]\n'), "invalid row .*: Expected `str`"),
        (lambda _: _sealed(b'["stone/s1",{}]\n'), "unknown to this release"),
    ],
)
def test_an_invalid_snapshot_is_rejected(spoil: Callable[[bytes], bytes], said: str) -> None:
    data = snapshot.data_of(known(shard("s1")).rows)
    with pytest.raises(InvalidInput, match=said):
        snapshot.restored("f", spoil(_sealed(data)))


def test_peers_off_loopback_need_an_identity(tmp_path: Path) -> None:
    """An open etcd peer port lets anyone write the fleet's state."""
    with pytest.raises(InvalidInput, match="need --identity"):
        EtcdMemberConfig("a", Path(sys.executable), tmp_path, {"a": "10.1.2.3:2380"})


def test_a_state_path_too_long_for_a_socket_is_rejected_with_the_excess(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="bytes shorter"):
        EtcdMemberConfig("a", Path(sys.executable), tmp_path / ("x" * 120), {})


def test_a_lone_replica_opens_no_port_at_all(tmp_path: Path) -> None:
    line = " ".join(command_line(EtcdMemberConfig("a", Path(sys.executable), tmp_path, {})))
    assert "http://" not in line
    assert "127.0.0.1" not in line
