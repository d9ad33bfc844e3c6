"""Karpenter is brought into clusters of other people only where it meets no other, and by somebody
who may do all that it does.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from bigfleet.kube.client import KubeClient
from controlplane.locate import LocatedBinary
from controlplane.pins import KARPENTER
from controlplane.request import Binaries
from loaddriver.karpenter.guest import DEFINITIONS, karpenter_guest
from loaddriver.karpenter.objects import node_pools
from loaddriver.profile.loading import load_profile
from loaddriver.sizing.inventory import fleet_inventory
from loaddriver.substrates.base import Cluster, RoleSpec, SubstrateError
from loaddriver.substrates.existing.contexts import read_contexts
from loaddriver.substrates.existing.definitions import COLLECTION
from loaddriver.substrates.existing.objects import FLEET, MANAGED, OWN_NAMESPACE, manifests
from loaddriver.substrates.existing.rights import needed_rules
from loaddriver.substrates.existing.substrate import ExistingSubstrate, Prerequisites
from loaddriver.substrates.runscope import RunScope
from tests.run.run_rig import PROFILES
from tests.support.existing_clusters import definition

GUEST = karpenter_guest()
MakeSubstrate = Callable[[Path], ExistingSubstrate]


@pytest.fixture
def substrate(binaries: Binaries, scope: RunScope, tmp_path: Path) -> MakeSubstrate:
    """The substrate of the cluster in a kubeconfig, for a run with Karpenter."""

    def make(kubeconfig: Path) -> ExistingSubstrate:
        contexts = tuple(read_contexts({"KUBECONFIG": str(kubeconfig)}, []))
        programs = {"kwok": LocatedBinary(binaries.kwok, binaries.versions["kwok"], "given")}
        prerequisites = Prerequisites(contexts, programs, dict(os.environ), GUEST)
        return ExistingSubstrate("guest-run", scope.data_directory, tmp_path, prerequisites)

    return make


@asynccontextmanager
async def defined(client: KubeClient, name: str) -> AsyncIterator[None]:
    await client.create(COLLECTION, definition(name))
    try:
        yield
    finally:
        await client.delete(f"{COLLECTION}/{name}")
        while name in (await client.get(COLLECTION)).decode():  # noqa: ASYNC110 - the server's work
            await asyncio.sleep(0.1)


async def namespaces(client: KubeClient) -> set[str]:
    found = json.loads(await client.get("/api/v1/namespaces"))["items"]
    return {each["metadata"]["name"] for each in found}


async def test_a_cluster_with_a_karpenter_of_its_own_is_refused_before_anything_is_created(
    cluster: Cluster, substrate: MakeSubstrate
) -> None:
    """Also if only one of its definitions is there: removing ours would remove its objects."""
    own = substrate(cluster.kubeconfigs["admin"])
    async with (
        await KubeClient.from_kubeconfig(cluster.kubeconfigs["admin"]) as client,
        defined(client, "nodepools.karpenter.sh"),
    ):
        with pytest.raises(SubstrateError, match=r"nodepools\.karpenter\.sh.*nothing was created"):
            await own.start_clusters(["c1"])
        await own.stop()
        assert OWN_NAMESPACE not in await namespaces(client)
        assert "nodepools.karpenter.sh" in (await client.get(COLLECTION)).decode()


async def test_each_right_that_karpenter_needs_in_addition_is_named(
    cluster: Cluster, substrate: MakeSubstrate
) -> None:
    """The recorder's own identity may read pods and nodes, and no more."""
    own = substrate(cluster.kubeconfigs["recorder"])
    with pytest.raises(SubstrateError) as refused:
        await own.start_clusters(["c1"])
    await own.stop()
    for right in (
        "create customresourcedefinitions.apiextensions.k8s.io",
        "patch nodes",
        "create nodepools.karpenter.sh",
        "patch nodeclaims.karpenter.sh/status",
        "create pods/eviction",
    ):
        assert f"\n  {right}\n" in f"{refused.value}\n", right


async def test_a_role_of_bigfleet_is_refused(cluster: Cluster, substrate: MakeSubstrate) -> None:
    own = substrate(cluster.kubeconfigs["admin"])
    with pytest.raises(SubstrateError, match="takes no roles of BigFleet"):
        await own.start_role(RoleSpec("operator", [], cluster="c1", identity="operator"))


def test_rights_for_karpenter_are_asked_for_only_with_karpenter() -> None:
    without, with_it = needed_rules(fleet_nodes=True), needed_rules(fleet_nodes=True, guest=GUEST)
    assert not any("karpenter" in group or "apiext" in group for group, _, _ in without)
    assert set(without) < set(with_it)
    assert set(GUEST.rules) <= set(with_it)  # nobody may grant more than he has


def test_karpenter_has_an_identity_of_its_own_that_writes_no_events() -> None:
    """It would write some about pods of others."""
    made = manifests("run", "me", GUEST)
    assert all(each["metadata"]["labels"][MANAGED[0]] == MANAGED[1] for each in made)
    (role,) = (e for e in made if e["kind"] == "ClusterRole" and "karp" in e["metadata"]["name"])
    resources = {name for rule in role["rules"] for name in rule["resources"]}
    assert {"nodeclaims", "nodes", "pods"} <= resources
    assert "events" not in resources


def test_only_the_load_tolerates_karpenters_nodes_and_only_our_kwok_plays_them() -> None:
    """And they are found by their label."""
    profile = load_profile("mixed-50", PROFILES, ["system=karpenter"])
    machines = fleet_inventory(profile, None)
    key, value = FLEET
    before = list(node_pools(machines, profile.settings))
    for pool, as_it_was in zip(
        node_pools(machines, profile.settings, apart=True), before, strict=True
    ):
        metadata, spec = pool["spec"]["template"]["metadata"], pool["spec"]["template"]["spec"]
        assert metadata["labels"].items() >= {key: value, MANAGED[0]: MANAGED[1]}.items()
        assert metadata["annotations"] == {key: value}
        own = {"key": key, "value": value, "effect": "NoSchedule"}
        assert spec["taints"] == [*as_it_was["spec"]["template"]["spec"]["taints"], own]


def test_the_definitions_that_are_looked_for_are_those_that_karpenter_has(
    binaries: Binaries,
) -> None:
    if binaries.karpenter is None:
        pytest.skip(f"no {KARPENTER}: run `python -m controlplane get --also {KARPENTER}`")
    printed = subprocess.run([binaries.karpenter, "--crds"], capture_output=True, check=True)
    assert {each["metadata"]["name"] for each in yaml.safe_load(printed.stdout)} == DEFINITIONS
