"""Wrong values are refused before anything is created, and the error names the key."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.charts.helm_rig import CLUSTER, FLEET, NAMESPACES, RELEASE, VALUES, Helm, HelmFailed

MINIMAL = {FLEET: VALUES / "fleet.yaml", CLUSTER: VALUES / "cluster.yaml"}
SIMULATED = VALUES / "fleet-simulated.yaml"

# Chart, what is set with --set-json on top of the least that must be set, and what the error names.
WRONG = [
    (FLEET, "replicas=3", "replicas"),
    (FLEET, "shard.replica=3", "replica"),
    (FLEET, "shard.resources.request={}", "request"),
    (FLEET, "identity.certManager.issuer.nam=3", "nam"),
    (FLEET, 'image.repository=""', "/image/repository"),
    (FLEET, 'image.repository="registry.example.com/bigfleet:v1"', "/image/repository"),
    (FLEET, 'image.pullPolicy="Sometimes"', "/image/pullPolicy"),
    (FLEET, 'provider.address=""', "/provider/address"),
    (FLEET, 'provider.address="provider.example.com"', "/provider/address"),
    (FLEET, 'provider.others=["cloud.example.com"]', "/provider/others/0"),
    (FLEET, "provider.simulated.enabled=true", "/provider/"),
    (FLEET, "coordinator.replicas=0", "/coordinator/replicas"),
    (FLEET, "coordinator.replicas=1.5", "/coordinator/replicas"),
    (FLEET, 'shard.replicas="3"', "/shard/replicas"),
    (FLEET, 'shard.domains="host"', "/shard/domains"),
    (FLEET, "shard.reclaimHoldSeconds=-1", "/shard/reclaimHoldSeconds"),
    (FLEET, 'shard.storage.size="2 GB"', "/shard/storage/size"),
    (FLEET, "shard.external.enabled=true", "/shard/external/domain"),
    (FLEET, 'shard.external.sourceRanges=["10.0.0.1"]', "/shard/external/sourceRanges/0"),
    (FLEET, "shard.ceilings.default.machine=3", "machine"),
    (FLEET, 'shard.flags={"--cycle":2}', "--cycle"),
    (FLEET, 'keepVolumes="no"', "/keepVolumes"),
    (FLEET, 'shard.ceilings.clusters.east.priority="high"', "/shard/ceilings/clusters/east"),
    (FLEET, "identity.certManager.enabled=true", "/identity/certManager/issuer/name"),
    (FLEET, 'identity.secretName="tls"', "/identity/secretName"),
    (FLEET, 'topologySpread.zone="Maybe"', "/topologySpread/zone"),
    (CLUSTER, 'clusterId=""', "/clusterId"),
    (CLUSTER, 'clusterId="a b"', "/clusterId"),
    (CLUSTER, "shards=[]", "/shards"),
    (CLUSTER, 'shards=["shard-0"]', "/shards/0"),
    (CLUSTER, 'apiServerForMachines=""', "/apiServerForMachines"),
    (CLUSTER, 'apiServerForMachines="http://10.0.0.1"', "/apiServerForMachines"),
    (CLUSTER, "operator.nodeReadyTimeout=3", "nodeReadyTimeout"),
    (CLUSTER, "podController.replicas=0", "/podController/replicas"),
    (CLUSTER, "networkPolicy.apiServerPorts=[0]", "/networkPolicy/apiServerPorts/0"),
    (CLUSTER, 'crds.install="yes"', "/crds/install"),
    (CLUSTER, "identity.certManager.enabled=true", "/identity/certManager/issuer/name"),
]


@pytest.mark.parametrize(("chart", "wrong", "key"), WRONG, ids=[each[1] for each in WRONG])
def test_a_wrong_or_unknown_value_is_refused_by_name(
    helm: Helm, chart: Path, wrong: str, key: str
) -> None:
    with pytest.raises(HelmFailed, match="values don't meet the specifications") as refused:
        helm.template(chart, MINIMAL[chart], "--set-json", wrong)
    assert f"'{key}" in str(refused.value)


@pytest.mark.parametrize("chart", [FLEET, CLUSTER], ids=lambda path: path.name)
def test_without_any_values_the_required_ones_are_named(
    helm: Helm, chart: Path, tmp_path: Path
) -> None:
    empty = tmp_path / "empty.yaml"
    empty.write_text("")
    with pytest.raises(HelmFailed) as refused:
        helm.template(chart, empty)
    required = {
        FLEET: ["/image/repository", "/provider/address"],
        CLUSTER: ["/image/repository", "/clusterId", "/shards", "/apiServerForMachines"],
    }
    for key in required[chart]:
        assert f"at '{key}'" in str(refused.value)


def test_a_simulated_fleet_without_machines_is_refused(helm: Helm) -> None:
    with pytest.raises(HelmFailed, match="/provider/simulated/machines"):
        helm.template(FLEET, SIMULATED, "--set-json", "provider.simulated.machines=[]")


def test_a_simulated_provider_beside_another_is_refused(helm: Helm) -> None:
    with pytest.raises(HelmFailed, match="/provider/address"):
        helm.template(FLEET, SIMULATED, "--set", "provider.address=provider.example.com:7790")


def test_the_cluster_chart_is_refused_in_another_namespace(helm: Helm) -> None:
    """Its ServiceAccounts and Leases have their permissions in the product's namespace only."""
    with pytest.raises(HelmFailed, match="namespace bigfleet-system, not elsewhere"):
        helm.run("template", RELEASE, CLUSTER, "-n", "elsewhere", "-f", MINIMAL[CLUSTER])


def test_a_product_file_that_is_no_yaml_is_refused_by_name(helm: Helm, tmp_path: Path) -> None:
    """Rather than left out."""
    chart = shutil.copytree(CLUSTER, tmp_path / "chart")
    (chart / "files" / "manifests" / "rbac.yaml").write_text("kind: {")
    flags = ("-n", NAMESPACES[CLUSTER], "-f", MINIMAL[CLUSTER])
    with pytest.raises(HelmFailed, match=r"files/manifests/rbac\.yaml"):
        helm.run("template", RELEASE, chart, *flags)
