"""charts/scaletest is valid in itself, refuses wrong values, and runs what the harness runs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
import yaml

from bigfleet.api.auth.identity import Principal
from bigfleet.commands import fedhpa
from bigfleet.commands import roles as role_commands
from bigfleet.commands.config_flags import LazyParser
from bigfleet.model.resources import parse
from kind.images.builder import Image
from kind.nodeimage.node import NodeImage
from loaddriver.__main__ import build_parser
from loaddriver.karpenter.node_source import karpenter_role
from loaddriver.kindrun.prerequisites import image_names
from loaddriver.kindrun.values import kind_values, volumes
from loaddriver.profile.loading import load_profile
from loaddriver.run.bigfleet_roles import cluster_roles, provider_role, shard_role
from loaddriver.run.chart_values import chart_values, heading
from loaddriver.substrates.base import Cluster
from loaddriver.substrates.pods import control_plane
from loaddriver.substrates.pods.counters import cluster_sources, role_source
from loaddriver.substrates.pods.file_server import __main__ as file_server
from loaddriver.substrates.pods.places import Places
from loaddriver.substrates.pods.pod_states import differing_flags
from tests.charts.helm_rig import ROOT, SCALETEST, VALUES, Helm, HelmFailed, Object, of_kind
from tests.charts.settings_rig import keys, schema_keys

NAMESPACE = RELEASE = "st"
IMAGES, EVERYTHING = VALUES / "scaletest.yaml", VALUES / "scaletest-everything.yaml"
KARPENTER, NO_SYSTEM = VALUES / "scaletest-karpenter.yaml", VALUES / "scaletest-none.yaml"
PROFILES = sorted(path.stem for path in (SCALETEST / "values").glob("*.yaml"))
OF_PROFILES = [SCALETEST / "values" / f"{name}.yaml" for name in PROFILES]
CASES = [IMAGES, EVERYTHING, *OF_PROFILES]
OTHER_SYSTEMS = [KARPENTER, NO_SYSTEM]
EACH_CASE = pytest.mark.parametrize("values", [*CASES, *OTHER_SYSTEMS], ids=lambda path: path.stem)
EACH_WITH_A_FLEET = pytest.mark.parametrize("values", CASES, ids=lambda path: path.stem)
EACH_PROFILE = pytest.mark.parametrize("name", PROFILES)
COMPONENT = "app.kubernetes.io/component"
Pod = tuple[dict[str, str], Object]


@cache
def template(helm: Helm, values: Path, *flags: str) -> list[Object]:
    """The objects of a release; not to be changed."""
    text = helm.run(
        "template", RELEASE, SCALETEST, "-n", NAMESPACE, "-f", IMAGES, "-f", values, *flags
    )
    return [each for each in yaml.safe_load_all(text) if each]


def pods(objects: list[Object]) -> Iterator[Pod]:
    """The labels and the spec of each pod template."""
    for each in of_kind(objects, "StatefulSet", "Deployment", "Job"):
        made = each["spec"]["template"]
        yield made["metadata"]["labels"], made["spec"]
    for each in of_kind(objects, "Pod"):
        yield each["metadata"]["labels"], each["spec"]


def containers(objects: list[Object]) -> Iterator[tuple[str, Object, Object]]:
    """The component, the pod's spec and the container of each container."""
    for labels, spec in pods(objects):
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            yield labels[COMPONENT], spec, container


def places(objects: list[Object]) -> Places:
    """What the release tells the runner."""
    [found] = [each for each in of_kind(objects, "ConfigMap") if "places.yaml" in each["data"]]
    return msgspec.yaml.decode(found["data"]["places.yaml"].encode(), type=Places)


@EACH_CASE
def test_lint_finds_nothing_also_when_it_is_strict(helm: Helm, values: Path) -> None:
    flags = ("lint", "--strict", SCALETEST, "-n", NAMESPACE, "-f", IMAGES, "-f", values)
    assert "0 chart(s) failed" in helm.run(*flags)


def test_the_schema_has_exactly_the_keys_that_are_documented() -> None:
    """So that an unknown key is refused, and no key is refused that the defaults have."""
    schema = yaml.safe_load((SCALETEST / "values.schema.json").read_text())
    documented = yaml.safe_load((SCALETEST / "values.yaml").read_text())
    del documented["bigfleet"]  # the schema of its own chart is applied to it
    taken = set(schema_keys({**schema, "properties": dict(schema["properties"])}, schema))
    bounds = ("requests", "limits")
    assert {key for key in taken if not key.endswith(bounds)} - {"bigfleet"} == {
        key for key in keys(documented) if not key.endswith(bounds)
    }


def test_a_comment_explains_each_key() -> None:
    """It stands above the key; `requests` and `limits` are explained by their container's."""
    lines = (SCALETEST / "values.yaml").read_text().splitlines()
    until = lines.index("bigfleet:")
    for number, line in enumerate(lines[:until]):
        key = re.match(r" *([A-Za-z-]+):", line)
        if key and key[1] not in ("requests", "limits"):
            assert lines[number - 1].lstrip().startswith("#"), f"line {number + 1}: {line}"


WRONG = [
    ("replicas=3", "replicas"),
    ("controlPlane.kwok.tagg=3", "tagg"),
    ('global.loaddriver.repository=""', "/global/loaddriver/repository"),
    ('bigfleet.image.repository=""', "/image/repository"),
    ("bigfleet.shard.replica=3", "replica"),
    ("clusters=0", "/clusters"),
    ('clusters="2"', "/clusters"),
    ('profile="Dev 50"', "/profile"),
    ('overrides=["soak"]', "/overrides/0"),
    ('flags.operator={"--lease":1}', "--lease"),
    ('results.size="5 GB"', "/results/size"),
    ('topologySpread.zone="Maybe"', "/topologySpread/zone"),
    ("networkPolicy.apiServerPorts=[0]", "/networkPolicy/apiServerPorts/0"),
    ("load.workers=0", "/load/workers"),
    ("load.workers=1001", "/load/workers"),
    ('load.workers="2"', "/load/workers"),
    ("load.replicas=2", "replicas"),
    ("controlPlane.resources.kubelet={}", "kubelet"),
    ('nestedClusters.system="karpenter"', "/nestedClusters/fleet"),
    ('nestedClusters.system="command"', "/nestedClusters/system"),
    ("nestedClusters.fleet=false", "/nestedClusters/fleet"),
    ('nestedClusters={"system":"karpenter","fleet":false}', "/controlPlane/karpenter/repository"),
    ('nestedClusters={"system":"none","fleet":true}', "/nestedClusters/fleet"),
]


@pytest.mark.parametrize(("wrong", "key"), WRONG, ids=[each[0] for each in WRONG])
def test_a_wrong_or_unknown_value_is_refused_by_name(helm: Helm, wrong: str, key: str) -> None:
    with pytest.raises(HelmFailed, match="values don't meet the specifications") as refused:
        template(helm, IMAGES, "--set-json", wrong)
    assert f"'{key}" in str(refused.value)


def test_a_second_run_in_one_release_is_refused(helm: Helm) -> None:
    """Its clusters hold the first run's load."""
    with pytest.raises(HelmFailed, match=r"a release is one run.*helm uninstall st"):
        template(helm, IMAGES, "--is-upgrade")


@EACH_PROFILE
def test_the_values_of_a_profile_are_those_that_the_harness_prints(name: str) -> None:
    profile = load_profile(name, ROOT / "profiles", (), None)
    text = (SCALETEST / "values" / f"{name}.yaml").read_text()
    assert text.startswith(heading(profile))
    assert yaml.safe_load(text) == chart_values(profile, (), None)


@EACH_PROFILE
def test_roles_run_with_the_flags_of_their_profile(helm: Helm, name: str) -> None:
    """The runner would refuse to start otherwise."""
    settings = load_profile(name, ROOT / "profiles", (), None).settings
    objects = template(helm, SCALETEST / "values" / f"{name}.yaml")
    arguments = {each["name"]: each["args"] for _, _, each in containers(objects) if "args" in each}
    operator, pod_controller = cluster_roles(settings, Cluster("c1", "", {}, None))
    wanted = {
        "operator": operator,
        "pod-controller": pod_controller,
        "shard": shard_role(settings),
        "provider": provider_role(settings, Path("inventory.jsonl")),
    }
    for container, role in wanted.items():
        assert list(differing_flags(role, arguments[container])) == []
    assert [each.name for each in places(objects).clusters] == list(settings.cluster_names)


@EACH_WITH_A_FLEET
def test_each_role_accepts_its_command_line(helm: Helm, values: Path) -> None:
    """Every flag exists: the product's parser, the harness's and that of the file server say so."""
    product = LazyParser(prog="bigfleet")
    roles = product.add_subparsers(dest="role", required=True)
    role_commands.add(roles)
    fedhpa.add(roles)
    seen = set()
    for component, _, container in containers(template(helm, values)):
        arguments = [each.replace("$(POD_NAME)", "p") for each in container.get("args", ())]
        command = container.get("command", [])
        if "/bigfleet:" in container["image"] and not command:
            assert product.parse_args(arguments).role == arguments[0]
        elif is_harness(container):
            build_parser().parse_args(arguments)
        elif command[-1:] == ["loaddriver.substrates.pods.file_server"]:
            file_server.parser().parse_args(arguments)
        seen.add((component, container["name"]))
    assert seen >= {
        ("cluster", "operator"),
        ("cluster", "pod-controller"),
        ("cluster", "files"),
        ("provider", "inventory"),
        ("provider", "provider"),
        ("runner", "runner"),
        ("shard", "files"),
        ("coordinator", "coordinator"),
    }


def is_harness(container: Object) -> bool:
    """Whether it runs a command of loaddriver's own command line."""
    return "/loaddriver:" in container["image"] and "command" not in container


@pytest.mark.parametrize("system", ["karpenter", "none"])
def test_nested_clusters_of_another_system_have_nothing_of_bigfleet(
    helm: Helm, system: str
) -> None:
    """Neither roles nor CRDs, nor an image that is missing because nothing needs it."""
    objects = template(helm, VALUES / f"scaletest-{system}.yaml")
    found = list(containers(objects))
    assert not [each["image"] for _, _, each in found if "bigfleet" in each["image"]]
    assert {component for component, _, _ in found} == {
        *("prepare", "cluster", "results", "runner", "test")
    }
    [install] = {str(each["args"]) for _, _, each in found if each["name"] == "install"}
    assert "bigfleet" not in install
    for each in (each for _, _, each in found if is_harness(each)):
        assert f"--set=system={system}" in each["args"]
        build_parser().parse_args(each["args"])


def test_the_karpenter_of_a_cluster_runs_as_a_local_one_does(helm: Helm) -> None:
    """It starts after its instance types were written, and the runner finds its flags right."""
    settings = load_profile("smoke", ROOT / "profiles", ("system=karpenter",), None).settings
    objects = template(helm, KARPENTER)
    [(_, spec, found)] = [each for each in containers(objects) if each[2]["name"] == "karpenter"]
    role = karpenter_role(settings, "c1", Path("types"), None)
    assert list(differing_flags(role, found["args"])) == []
    first = [each["name"] for each in spec["initContainers"]]
    assert first[-3:] == ["install", "karpenter-definitions", "karpenter-setup"]
    assert places(objects).roles.keys() == {role.name}


def test_the_values_of_another_system_are_those_that_the_harness_prints() -> None:
    """The system is a value of the chart, and no override besides."""
    overrides = ("system=karpenter", "soak.seconds=30")
    profile = load_profile("smoke", ROOT / "profiles", overrides, None)
    found = chart_values(profile, overrides, None)
    assert found["nestedClusters"] == {"system": "karpenter", "fleet": False}
    assert found["overrides"] == ["soak.seconds=30"]
    assert found["flags"].keys() == {"karpenter"}
    assert "bigfleet" not in found


def test_nested_control_planes_run_as_local_ones_do() -> None:
    text = (SCALETEST / "files" / "control-plane.yaml").read_text()
    assert text == control_plane.text(), "python -m loaddriver.substrates.pods.control_plane"


@EACH_CASE
def test_every_pod_is_restricted_and_has_its_requests(helm: Helm, values: Path) -> None:
    for component, spec, container in containers(template(helm, values)):
        where = f"{component}/{container['name']}"
        security = container["securityContext"]
        assert spec["securityContext"]["runAsNonRoot"], where
        assert security["readOnlyRootFilesystem"], where
        assert security["capabilities"]["drop"] == ["ALL"], where
        added = security["capabilities"].get("add", [])
        assert added == (["NET_BIND_SERVICE"] if container["name"] == "kube-apiserver" else [])
        assert {"cpu", "memory"} <= set(container["resources"]["requests"]), where
        mounts = {mount["name"] for mount in container["volumeMounts"]}
        claims = {"state"} if component in ("shard", "coordinator") else set()
        assert mounts <= {volume["name"] for volume in spec["volumes"]} | claims, where
        assert "tmp" in mounts, where


@EACH_CASE
def test_no_volume_is_mounted_over_a_program(helm: Helm, values: Path) -> None:
    """The images of one binary have it at /NAME."""
    for component, _, container in containers(template(helm, values)):
        image = container["image"].rpartition(":")[0].rpartition("/")[2]
        mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert f"/{image}" not in mounts, f"{component}/{container['name']}"


@EACH_CASE
def test_every_selector_selects_pods_of_the_release(helm: Helm, values: Path) -> None:
    """A Service, budget or policy whose labels are misspelt is accepted, and does nothing."""
    objects = template(helm, values)
    labels = [each for each, _ in pods(objects)]
    for each in of_kind(objects, "Service", "PodDisruptionBudget", "NetworkPolicy"):
        spec = each["spec"]
        selector = dict(spec.get("podSelector", spec.get("selector")))
        selector = selector.get("matchLabels", selector)
        assert any(selector.items() <= pod.items() for pod in labels), each["metadata"]["name"]


@EACH_CASE
def test_the_runner_is_told_of_containers_and_hosts_that_exist(helm: Helm, values: Path) -> None:
    objects = template(helm, values)
    told = places(objects)
    sets = {each["metadata"]["name"]: each for each in of_kind(objects, "StatefulSet")}
    services = {each["metadata"]["name"]: each for each in of_kind(objects, "Service")}
    for role in (each for each in told.roles.values() if each.pod):
        name, _, number = role.pod.rpartition("-")
        spec: Any = sets[name]["spec"]
        assert int(number) < spec["replicas"]
        assert role.container in {c["name"] for c in spec["template"]["spec"]["containers"]}
        for address in filter(
            None, (role.observe, role.listen, role.files.removeprefix("http://"))
        ):
            host, _, port = address.rpartition(":")
            [service] = [
                services[part] for part in host.split(".")[:2] if part in services
            ] or pytest.fail(f"{host} is no Service's")
            taken = {each["port"] for each in service["spec"]["ports"]}
            # A headless Service names pods; it need not list their ports.
            assert int(port) in taken or int(port) == 8090
    for cluster in told.clusters:
        assert cluster.host.split(".")[0] in services


def open_to_the_runner(objects: list[Object]) -> set[Any]:
    """The ports of nested clusters that it may connect to, where policies are enforced."""
    [policy] = [
        each["spec"]
        for each in of_kind(objects, "NetworkPolicy")
        if each["metadata"]["name"] == f"{RELEASE}-cluster"
    ]
    own = {"app.kubernetes.io/component": "runner", "app.kubernetes.io/instance": RELEASE}
    return {
        port["port"]
        for rule in policy["ingress"]
        for port in rule["ports"]
        if any(own.items() <= peer["podSelector"]["matchLabels"].items() for peer in rule["from"])
    }


def test_the_runner_may_read_the_metrics_of_each_component(helm: Helm) -> None:
    """By its address and port."""
    objects = template(helm, EVERYTHING)
    ports = open_to_the_runner(objects)
    [place, *_] = places(objects).clusters
    for source in cluster_sources(place, Path(), resource_metrics=True).values():
        url = urlsplit(source.url)
        assert url.hostname == place.host
        assert {url.port, "api" if url.port == 6443 else url.port} & ports, source.url


def test_the_runner_may_read_the_metrics_of_karpenter(helm: Helm) -> None:
    """They have a port of their own."""
    objects = template(helm, KARPENTER)
    [role] = places(objects).roles.values()
    assert {urlsplit(role_source(role).url).port, "karpenter"} <= open_to_the_runner(objects)


@EACH_CASE
def test_every_secret_that_a_pod_mounts_is_made(helm: Helm, values: Path) -> None:
    """Else its pod would wait for ever."""
    objects = template(helm, values)
    told = places(objects)
    made = {told.authority_secret, told.token_secret, *(each.secret for each in told.identities)}
    made |= {name for each in told.api_servers for name in (each.secret, each.access)}
    for _, spec in pods(objects):
        for volume in spec["volumes"]:
            sources = volume.get("projected", {}).get("sources", [volume])
            mounted = [each["secret"] for each in sources if "secret" in each]
            assert {each.get("secretName") or each["name"] for each in mounted} <= made
    for identity in told.identities:
        assert Principal.parse(identity.principal)


def test_a_release_of_two_hundred_clusters_fits_into_its_secret(helm: Helm) -> None:
    """Helm keeps a release in one object of at most 1 MiB, compressed; ConfigMaps have no more."""
    objects = template(helm, SCALETEST / "values" / "50k.yaml")
    [told] = [each for each in of_kind(objects, "ConfigMap") if "places.yaml" in each["data"]]
    assert len(told["data"]["places.yaml"]) < 2**20 / 4


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("smoke", ()),
        ("smoke", ("load.workers=5",)),
        ("smoke", ("system=karpenter",)),
        ("smoke", ("system=none",)),
        ("shards-8", ()),
        ("fedhpa-3", ()),
    ],
)
def test_a_release_for_kind_fits_on_a_node_of_two_cores(
    helm: Helm, name: str, overrides: tuple[str, ...], tmp_path: Path
) -> None:
    """Beside what kubeadm runs there; each claim finds its volume."""
    loaded = load_profile(name, ROOT / "profiles", overrides, None)
    profile = chart_values(loaded, overrides, None)
    names = image_names(loaded.settings)
    images = {each: Image(f"localhost/{each}:1", tmp_path) for each in names}
    files = tmp_path / "profile.yaml", tmp_path / "kind.yaml"
    on_kind = kind_values(profile, images, NodeImage("node", False, {}), 2.0)
    for file, values in zip(files, (profile, on_kind), strict=True):
        file.write_text(yaml.safe_dump(values))
    objects = template(helm, files[0], "-f", str(files[1]))
    assert sum(replicas * millicores(spec) for replicas, spec in running(objects)) <= 1150
    volumes_of = Counter(each["spec"]["storageClassName"] for each in volumes(profile))
    assert Counter(claimed(objects)) == volumes_of


def running(objects: list[Object]) -> Iterator[tuple[int, Object]]:
    """The pods of a release that run at a time: how many, and their spec."""
    for each in of_kind(objects, "StatefulSet", "Deployment", "Job"):
        yield each["spec"].get("replicas", 1), each["spec"]["template"]["spec"]


def millicores(spec: Object) -> int:
    """What a pod requests: its containers together, or those that start first, if that is more."""
    first = spec.get("initContainers", [])
    stay = [each for each in first if each.get("restartPolicy") == "Always"]
    end = [each for each in first if each not in stay]
    together = sum(map(requested, (*spec["containers"], *stay)))
    return max([together, *(sum(map(requested, stay)) + requested(each) for each in end)])


def requested(container: Object) -> int:
    return parse("cpu", str(container["resources"]["requests"]["cpu"]), round_up=True)


def claimed(objects: list[Object]) -> Iterator[str]:
    """The class of each claim."""
    for each in of_kind(objects, "PersistentVolumeClaim"):
        yield each["spec"]["storageClassName"]
    for each in of_kind(objects, "StatefulSet"):
        for claim in each["spec"].get("volumeClaimTemplates", ()):
            yield from each["spec"]["replicas"] * [claim["spec"]["storageClassName"]]


def test_only_a_federation_has_an_api_server_more_and_clusters_without_bigfleet(
    helm: Helm,
) -> None:
    """On premise no operator runs; each cluster has metrics-server; the runner is told so."""
    objects = template(helm, SCALETEST / "values" / "fedhpa-3.yaml")
    seen = {
        each["metadata"]["name"]: {
            c["name"] for c in each["spec"]["template"]["spec"]["containers"]
        }
        for each in of_kind(objects, "StatefulSet")
    }
    assert seen["st-host"] == {"files"}
    assert "operator" not in seen["st-c1"]
    assert "operator" in seen["st-c2"]
    assert all("metrics-server" in seen[f"st-c{number}"] for number in (1, 2, 3))
    told = places(objects)
    assert told.federation is not None
    assert {"c2/operator", "federation"} < told.roles.keys() - {"c1/operator"}
    assert "c1/operator" not in told.roles
    plain = places(template(helm, SCALETEST / "values" / "smoke.yaml"))
    assert (plain.federation, "federation" in plain.roles) == (None, False)
