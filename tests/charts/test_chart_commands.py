"""The product's own parsers accept what the charts render."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path

import pytest

from bigfleet.adapters.store.ceilings_file import CeilingsFile
from bigfleet.api.auth.issuing import issue
from bigfleet.commands import roles
from bigfleet.commands.config_flags import LazyParser
from bigfleet.controllers.operator.role import OperatorConfig
from bigfleet.model.ceiling import HIGHEST_PRIORITY
from bigfleet.services.coordinator.config import CoordinatorConfig
from bigfleet.services.provider import inventory
from bigfleet.services.provider.config import ProviderConfig
from bigfleet.services.shard.config import ShardConfig
from controlplane.locate import locate
from controlplane.request import request_from
from tests.charts.helm_rig import (
    CASES,
    CLUSTER,
    FLEET,
    VALUES,
    Helm,
    Object,
    Replica,
    mounted_files,
    mounted_identities,
    of_kind,
    replicas,
)
from tests.charts.identities_rig import principal

EACH_CASE = pytest.mark.parametrize(("chart", "values"), CASES, ids=lambda path: path.stem)
FOLDERS = ("/identities/", "/identity", "/var/lib/bigfleet", "/etc/bigfleet", "/kubeconfigs")


@pytest.fixture
def root() -> Iterator[Path]:
    """Not `tmp_path`, which may be too long: a coordinator has sockets in its directory."""
    with tempfile.TemporaryDirectory(prefix="charts-") as directory:
        yield Path(directory)


@cache
def etcd() -> Path:
    """An executable: the coordinator's configuration asks for one."""
    found = locate(request_from({"HOME": str(Path.home())}), lambda _: None)
    return found["etcd"].path if "etcd" in found else Path("/bin/true")


def configuration(replica: Replica, objects: list[Object], root: Path) -> object:
    """What the role's own parser makes of the command line, with the pod's files below `root`."""
    for path, text in mounted_files(replica, objects):
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    if name := principal(replica):
        made = issue(root / "issued", [name], timedelta(days=1))[name].directory
        folder = root / replica.flag("--identity").lstrip("/")
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.symlink_to(made)
    arguments = [each.replace("/usr/local/bin/etcd", str(etcd())) for each in replica.arguments]
    for folder_path in FOLDERS:
        arguments = [each.replace(f"={folder_path}", f"={root}{folder_path}") for each in arguments]
    parser = LazyParser(prog="bigfleet")
    roles.add(parser.add_subparsers(dest="role", required=True))
    flags = parser.parse_args(arguments)
    [config] = flags.build(flags).args
    return config


def configurations(helm: Helm, chart: Path, name: str, root: Path) -> dict[str, object]:
    """The configuration of each pod, by its name."""
    objects = helm.template(chart, VALUES / f"{name}.yaml")
    pods = {each.name: each for each in replicas(objects)}
    return {
        name: configuration(pod, objects, root / str(number))
        for number, (name, pod) in enumerate(pods.items())
    }


@EACH_CASE
def test_every_command_line_is_one_that_its_role_accepts(
    helm: Helm, chart: Path, values: Path, root: Path
) -> None:
    """Every flag exists, every value can be parsed, every identity is that of its process."""
    assert configurations(helm, chart, values.stem, root)


@EACH_CASE
def test_a_process_finds_its_identity_among_those_mounted(
    helm: Helm, chart: Path, values: Path
) -> None:
    for replica in replicas(helm.template(chart, values)):
        if principal(replica):
            secrets = dict(mounted_identities(replica))
            assert replica.flag("--identity") in secrets
            assert len(set(secrets.values())) == len(secrets)


@EACH_CASE
def test_all_that_a_process_writes_is_in_a_volume(helm: Helm, chart: Path, values: Path) -> None:
    """Its root file system is read-only, and what it keeps must outlive the pod."""
    for replica in replicas(helm.template(chart, values)):
        mounts = {each["mountPath"]: each for each in replica.container["volumeMounts"]}
        assert not mounts["/tmp"].get("readOnly")
        written = [
            each.partition("=")[2]
            for each in replica.arguments
            if each.startswith(("--state=", "--journal="))
        ]
        written += [
            each["value"]
            for each in replica.container.get("env", ())
            if each["name"] == "NUMBA_CACHE_DIR"
        ]
        for path in written:
            assert path.startswith("/var/lib/bigfleet/")
            assert mounts["/var/lib/bigfleet"]["name"] == "state"


def test_the_replicas_of_a_fleet_name_each_other(helm: Helm, root: Path) -> None:
    """Each coordinator is a peer at its own address, and shards call all of them."""
    made = configurations(helm, FLEET, "fleet-everything", root)
    coordinators = {k: v for k, v in made.items() if isinstance(v, CoordinatorConfig)}
    shards = {k: v for k, v in made.items() if isinstance(v, ShardConfig)}
    assert (len(coordinators), len(shards)) == (5, 4)
    addresses = {each.advertised for each in coordinators.values()}
    for name, config in coordinators.items():
        assert config.node_id == name
        assert set(config.peers) == set(coordinators)
        host = config.advertised.rpartition(":")[0]
        assert config.peers[name] == f"{host}:7792"
        assert host == f"{name}.bigfleet-coordinator.fleet.svc.fleet.local"
        assert set(config.join) == addresses
        assert config.expected_shards == len(shards)
    for name, shard in shards.items():
        assert shard.shard_id == name
        assert set(shard.coordinator_addresses) == addresses
        assert shard.advertised == f"{name}.shards.example.com:7780"


def test_values_reach_the_shards_configuration(helm: Helm, root: Path) -> None:
    """Large numbers, too, which YAML and templates like to write with exponents."""
    made = configurations(helm, FLEET, "fleet-everything", root)
    shard = made["bigfleet-shard-0"]
    assert isinstance(shard, ShardConfig)
    assert shard.actuation_paused
    assert shard.provider_addresses == ("provider.example.com:9000", "cloud.example.com:9001")
    assert shard.cluster_absence_seconds == 3600000
    assert shard.engine.reclaim_hold_seconds == 0
    assert shard.ceilings is not None
    ceilings = CeilingsFile(shard.ceilings).current()
    assert ceilings.default.priority == 1000000000
    assert ceilings.default.dollars_per_hour == 100.5
    assert ceilings.clusters["prod-1"].priority == HIGHEST_PRIORITY
    assert ceilings.clusters["prod-1"].machines == 1000000


def test_without_values_the_shards_own_defaults_hold(helm: Helm, root: Path) -> None:
    """The chart does not repeat them, so they cannot differ."""
    made = configurations(helm, FLEET, "fleet", root)
    shard = made["bigfleet-shard-0"]
    assert isinstance(shard, ShardConfig)
    default = ShardConfig("s", 0, 0, ("p:1",), root)
    assert shard.engine == default.engine
    assert shard.cluster_absence_seconds == default.cluster_absence_seconds
    assert shard.ceilings is None


def test_the_simulated_provider_reads_its_machines(helm: Helm, root: Path) -> None:
    made = configurations(helm, FLEET, "fleet-simulated", root)
    provider, shard = made["bigfleet-provider"], made["bigfleet-shard-0"]
    assert isinstance(provider, ProviderConfig)
    assert isinstance(shard, ShardConfig)
    assert [each.id for each in inventory.read(provider.inventory_file)] == ["m-1", "m-2"]
    assert provider.host_kubeconfigs is not None
    host, _, port = shard.provider_addresses[0].rpartition(":")
    [service] = [
        each
        for each in of_kind(helm.template(FLEET, VALUES / "fleet-simulated.yaml"), "Service")
        if host == f"{each['metadata']['name']}.fleet.svc.cluster.local"
    ]
    assert int(port) in {each["port"] for each in service["spec"]["ports"]}
    assert provider.listen_port == int(port)


def test_values_reach_the_operators_configuration(helm: Helm, root: Path) -> None:
    made = configurations(helm, CLUSTER, "cluster-everything", root)
    operator = made["bigfleet-operator"]
    assert isinstance(operator, OperatorConfig)
    assert operator.cluster_id == "Prod_1.eu"
    assert tuple(operator.shard_addresses) == ("a.example.com:7780", "b.example.com:9000")
    assert operator.api_server_for_machines == "https://10.0.0.1:8443/clusters/prod"
    assert operator.node_ready_timeout_seconds == 600
    assert operator.acknowledge_per_second == 0
