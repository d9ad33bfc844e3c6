"""The lines of the guide to Cluster API, as a reader would run them."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from bigfleet.adapters.provider.grpc import GrpcProvider
from bigfleet.api.auth.identity import Identity
from bigfleet.kube.client import KubeClient
from bigfleet.services.provider.capi.catalog import read
from bigfleet.services.provider.capi.placeholders import facts_of
from tests.services.provider.capi_rig import Rig, rig
from tests.support import cluster_api
from tests.support.clusters import get
from tests.support.guides import GUIDES, commands
from tests.support.listed import listed
from tests.support.ports import free_address
from tests.support.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]
GUIDE = "cluster-api.md"
ROOT = Path(__file__).parents[3]
LISTEN, OBSERVE = "127.0.0.1:7790", "127.0.0.1:7791"


def of_guide(program: str) -> list[str]:
    """The words after `program` of the guide's one command of it."""
    [words] = commands(GUIDE, program)
    return [word for word in words if word != "&"]


def applied() -> list[str]:
    """The files that the guide applies, in its order."""
    return [words[-1] for words in commands(GUIDE, "kubectl -n fleet apply -f")]


@asynccontextmanager
async def process(log: Path, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """`bigfleet` with these words; it is killed at the end."""
    with log.open("wb") as output:
        command = (sys.executable, "-m", "bigfleet", *words)
        child = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, stdout=output, stderr=output
        )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


async def count_of_machines(address: str, identity: Identity | None = None) -> int:
    """How many machines the provider there lists; 0 if it does not answer."""
    client = GrpcProvider(address, identity)
    try:
        return len(await listed(client))
    except Exception:  # noqa: BLE001 - it is not up yet
        return 0
    finally:
        await client.close()


def placed(made: Rig, words: list[str], replaced: dict[str, str]) -> list[str]:
    """The words for this test's namespace, addresses and files."""
    replaced = {
        **replaced,
        "fleet": made.namespace,
        "build/management.kubeconfig": str(made.kubeconfig),
    }
    return [replaced.get(word, word) for word in words]


async def test_the_guides_lines_lead_to_the_first_machine(
    kubeconfig: dict[str, Path], tmp_path: Path
) -> None:
    """It joins the cluster east by kubeadm's config, and what the suite made is deleted."""
    files = [f"examples/cluster-api/{name}.yaml" for name in ("role", "bootstrap", "deployment")]
    assert applied() == files  # the rig and the next test apply them
    async with rig(kubeconfig["admin"], tmp_path) as made:
        made.cluster.id = "east"
        addresses = {LISTEN: free_address(), OBSERVE: free_address()}
        provider = placed(made, of_guide("bigfleet capi-provider"), addresses)
        # Several suites share the machine, and an answer takes several requests.
        suite = [*placed(made, of_guide("bigfleet conformance"), addresses), "--answer-seconds=10"]
        async with process(tmp_path / "provider.log", "capi-provider", *provider):

            async def there() -> bool:
                return await count_of_machines(addresses[LISTEN]) > 0

            await eventually(there, "the provider")
            async with process(tmp_path / "suite.log", "conformance", *suite) as conformance:
                assert await conformance.wait() == 0, (tmp_path / "suite.log").read_text()
        printed = (tmp_path / "suite.log").read_text()
        assert re.search(r"lifecycle/full\b.*\n?.*m6i-large-a-\d+ passed through it", printed)
        assert await made.left() == []


async def test_the_deployment_runs_with_the_offerings_and_a_certificate(
    kubeconfig: dict[str, Path], tmp_path: Path
) -> None:
    """The API server takes it, and its arguments start the provider that the shards trust."""
    async with rig(kubeconfig["admin"], tmp_path) as made:
        objects = cluster_api.documents("deployment.yaml")
        await cluster_api.create(made.admin, made.namespace, *objects)
        [container] = objects[0]["spec"]["template"]["spec"]["containers"]
        [(name, source)] = commands(GUIDE, "kubectl -n fleet create configmap")
        flag, _, file = source.partition("=")
        assert (flag, file) == ("--from-file", "examples/cluster-api/offerings.yaml")
        volumes = objects[0]["spec"]["template"]["spec"]["volumes"]
        assert volumes[0]["configMap"]["name"] == name
        certs = tmp_path / "certs"
        words = ("certs", "--out", str(certs), "--provider", "cluster-api")
        async with process(tmp_path / "certs.log", *words) as issuer:
            assert await issuer.wait() == 0
        address = free_address()
        arguments = [
            each.replace("0.0.0.0:7790", address)
            .replace("0.0.0.0:7791", free_address())
            .replace("/etc/bigfleet/offerings", str(cluster_api.EXAMPLES))
            .replace("/etc/bigfleet/identity", str(certs / "provider-cluster-api"))
            .replace("=fleet", f"={made.namespace}")
            for each in container["args"]
        ]
        arguments.append(f"--kubeconfig={made.kubeconfig}")
        identity = Identity(certs / "admin")
        async with process(tmp_path / "provider.log", *arguments) as child:

            async def there() -> bool:
                assert child.returncode is None, (tmp_path / "provider.log").read_text()
                return await count_of_machines(address, identity) == 36

            await eventually(there, "the provider")


def test_each_template_of_the_offerings_is_within_the_role_and_each_secret_too() -> None:
    """A reader who adapts one sees what belongs to it in the other."""
    offered = read(cluster_api.EXAMPLES / "offerings.yaml")
    rules = next(each for each in cluster_api.documents("role.yaml") if each["kind"] == "Role")
    allowed = {
        (resource, verb)
        for r in rules["rules"]
        for resource in r["resources"]
        for verb in r["verbs"]
    }
    templates = [each.template for each in offered.offerings.values()]
    templates += [e.bootstrap_template for e in offered.clusters.values() if e.bootstrap_template]
    for each in templates:
        assert (f"{each.kind.lower()}s", "get") in allowed
        made = f"{each.made_kind.lower()}s"
        assert {(made, verb) for verb in ("get", "create", "delete")} <= allowed
    named = [name for rule in rules["rules"] for name in rule.get("resourceNames", ())]
    assert named == [e.bootstrap_secret for e in offered.clusters.values() if e.bootstrap_secret]
    unnamed = [
        r for r in rules["rules"] if "secrets" in r["resources"] and "resourceNames" not in r
    ]
    assert all("get" not in rule["verbs"] and "list" not in rule["verbs"] for rule in unnamed)


async def test_the_provider_cannot_read_the_kubeconfigs_of_clusters(
    kubeconfig: dict[str, Path], tmp_path: Path
) -> None:
    """They are Secrets of the same namespace."""
    async with rig(kubeconfig["admin"], tmp_path) as made:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "east-kubeconfig"}}
        await cluster_api.create(made.admin, made.namespace, secret)
        secrets = f"/api/v1/namespaces/{made.namespace}/secrets"
        async with await KubeClient.from_kubeconfig(made.kubeconfig) as provider:
            assert await get(provider, f"{secrets}/west-bootstrap") is not None
            for path in (f"{secrets}/east-kubeconfig", secrets):
                with pytest.raises(Exception, match="is forbidden"):
                    await get(provider, path)


def test_the_guide_names_every_placeholder_and_field() -> None:
    """The placeholders that are filled, and the fields that inventories lack."""
    text = (GUIDES / GUIDE).read_text()
    example = yaml.safe_load((cluster_api.EXAMPLES / "offerings.yaml").read_text())
    named = set(re.findall(r"\{\{bigfleet\.(\w+)\}\}", text))
    machine = read(cluster_api.EXAMPLES / "offerings.yaml").machines[0]
    blob = (cluster_api.EXAMPLES / "blob.json").read_bytes()
    assert named == set(facts_of(machine, blob))
    for field in ("name", "count", "template", "failure_domain", "boot_timeout_seconds"):
        assert f"`{field}`" in text
        assert any(field in each for each in example["offerings"])
