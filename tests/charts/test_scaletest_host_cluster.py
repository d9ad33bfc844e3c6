"""charts/scaletest for the cluster that it is in: a runner with its rights, and no fleet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from loaddriver.__main__ import build_parser
from loaddriver.commands.flags import run_options
from loaddriver.errors import ProfileError
from loaddriver.profile.loading import PROFILES, load_profile
from loaddriver.run.host_cluster_values import host_cluster_heading, host_cluster_values
from loaddriver.substrates.existing import rights
from tests.charts.helm_rig import SCALETEST, VALUES, Helm, HelmFailed, Object, of_kind

NAMESPACE = RELEASE = "st"
IMAGES, HOST = VALUES / "scaletest.yaml", VALUES / "scaletest-host.yaml"
EVERYTHING = VALUES / "scaletest-host-everything.yaml"
EACH_CASE = pytest.mark.parametrize("values", [HOST, EVERYTHING], ids=lambda path: path.stem)
COMPONENT = "app.kubernetes.io/component"
NONE = ("system=none",)
Right = tuple[str, str, str]


def template(helm: Helm, values: Path, *flags: str) -> list[Object]:
    """The objects of a release."""
    files = ("-f", IMAGES, "-f", values)
    text = helm.run("template", RELEASE, SCALETEST, "-n", NAMESPACE, *files, *flags)
    return [each for each in yaml.safe_load_all(text) if each]


def pods(objects: list[Object]) -> Iterator[tuple[dict[str, str], Object]]:
    """The labels and the spec of each pod template."""
    for each in of_kind(objects, "Job", "Deployment"):
        made = each["spec"]["template"]
        yield made["metadata"]["labels"], made["spec"]


def container(objects: list[Object], component: str) -> Object:
    """The only container of a component."""
    [spec] = [spec for labels, spec in pods(objects) if labels[COMPONENT] == component]
    [found] = spec["containers"]
    return dict(found)


def host_values(name: str, *overrides: str, seed: int | None = None) -> dict[str, Any]:
    return host_cluster_values(load_profile(name, PROFILES, overrides, seed), overrides, seed)


@EACH_CASE
def test_a_strict_lint_finds_nothing_for_the_host_cluster(helm: Helm, values: Path) -> None:
    flags = ("lint", "--strict", SCALETEST, "-n", NAMESPACE, "-f", IMAGES, "-f", values)
    assert "0 chart(s) failed" in helm.run(*flags)


def test_there_is_neither_a_fleet_nor_any_nested_cluster(helm: Helm) -> None:
    found = template(helm, HOST)
    assert Counter((each["kind"], each["metadata"]["name"]) for each in found) == Counter(
        [
            ("Job", "st-runner"),
            ("Job", "st-uninstall"),
            ("Deployment", "st-results"),
            ("PersistentVolumeClaim", "st-results"),
            ("PodDisruptionBudget", "st-runner"),
            ("ClusterRole", "st-st-scaletest"),
            ("ClusterRoleBinding", "st-st-scaletest"),
            *((kind, f"st-{name}") for kind in PER_COMPONENT for name in COMPONENTS),
        ]
    )


PER_COMPONENT = ("ServiceAccount", "NetworkPolicy")
COMPONENTS = ("runner", "uninstall", "results")


def test_an_image_of_bigfleet_is_not_asked_for(helm: Helm, tmp_path: Path) -> None:
    """Nothing runs it."""
    harness = tmp_path / "harness.yaml"
    harness.write_text("global: {loaddriver: {repository: registry.example.com/loaddriver}}")
    files = ("-f", harness, "-f", HOST)
    text = helm.run("template", RELEASE, SCALETEST, "-n", NAMESPACE, *files)
    images = {
        each["image"]
        for _, spec in pods([each for each in yaml.safe_load_all(text) if each])
        for each in spec["containers"]
    }
    assert images == {"registry.example.com/loaddriver:0.1.0"}


@EACH_CASE
def test_the_runners_pod_has_what_every_other_has(helm: Helm, values: Path) -> None:
    """The restricted standard, requests, volumes; a token only where the API is called."""
    for labels, spec in pods(template(helm, values)):
        [each] = spec["containers"]
        assert spec["securityContext"]["runAsNonRoot"]
        assert each["securityContext"]["readOnlyRootFilesystem"]
        assert each["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert {"cpu", "memory"} <= set(each["resources"]["requests"])
        mounts = {mount["name"] for mount in each["volumeMounts"]}
        assert mounts == {volume["name"] for volume in spec["volumes"]}
        assert ("api" in mounts) == (labels[COMPONENT] != "results")


@EACH_CASE
def test_each_policy_and_budget_selects_a_pod_of_the_release(helm: Helm, values: Path) -> None:
    objects = template(helm, values)
    labels = [each for each, _ in pods(objects)]
    for each in of_kind(objects, "PodDisruptionBudget", "NetworkPolicy"):
        spec = each["spec"]
        selector = spec.get("podSelector", spec.get("selector"))["matchLabels"]
        assert any(selector.items() <= pod.items() for pod in labels), each["metadata"]["name"]


def test_the_runner_plays_the_profile_as_its_service_account(helm: Helm) -> None:
    """Values reach the harness's own parser, large numbers, too."""
    arguments = container(template(helm, HOST), "runner")["args"]
    options = run_options(build_parser().parse_args(arguments))
    assert (options.profile, options.substrate, options.seed) == ("smoke", "existing", None)
    assert options.contexts == ("in-cluster",)
    assert options.overrides == ("system=none", "none.nodes=fleet")
    arguments = container(template(helm, EVERYTHING), "runner")["args"]
    options = run_options(build_parser().parse_args(arguments))
    assert (options.profile, options.seed) == ("dev-50", 1000000007)
    more = ("clusters=1", "anchors=off", "soak.seconds=30", "command.nodeSelector={a: b}")
    assert options.overrides == ("system=command", *more)
    load_profile(options.profile, PROFILES, options.overrides, options.seed)


def granted(rules: list[Object]) -> set[Right]:
    """Group, resource and verb of each right."""
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize(
    ("system", "nodes", "fleet_nodes"),
    [("none", "fleet", True), ("none", "existing", False), ("command", "fleet", False)],
)
def test_the_runner_has_exactly_the_rights_that_it_asks_for(
    helm: Helm, system: str, nodes: str, fleet_nodes: bool
) -> None:
    """Those by which Nodes are created only if it registers any."""
    sets = f"hostCluster.system={system},hostCluster.nodes={nodes}"
    objects = template(helm, HOST, "--set", sets)
    [role] = of_kind(objects, "ClusterRole")
    needed = rights.needed_rules(fleet_nodes=fleet_nodes)
    assert granted(role["rules"]) == {
        (group, resource, verb)
        for group, resources, verbs in needed
        for resource in resources
        for verb in verbs
    }
    [binding] = of_kind(objects, "ClusterRoleBinding")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    accounts = {each["metadata"]["name"] for each in of_kind(objects, "ServiceAccount")}
    bound = {each["name"] for each in binding["subjects"]}
    assert bound == {"st-runner", "st-uninstall"} < accounts
    assert not of_kind(objects, "Role", "RoleBinding")


def test_the_charts_rights_are_those_that_the_harness_prints() -> None:
    text = (SCALETEST / "files" / "host-rights.yaml").read_text()
    assert text == rights.text(), "python -m loaddriver.substrates.existing.rights"


def test_an_uninstallation_first_ends_the_run(helm: Helm) -> None:
    """While it still has its rights; the runner has the time to remove what it made."""
    jobs = {each["metadata"]["name"]: each for each in of_kind(template(helm, HOST), "Job")}
    assert jobs["st-uninstall"]["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
    found = container(list(jobs.values()), "uninstall")
    assert found["command"][-1] == "loaddriver.substrates.existing.release_end"
    assert found["args"] == [NAMESPACE, "st-runner"]
    spec = jobs["st-runner"]["spec"]["template"]["spec"]
    assert 150 < spec["terminationGracePeriodSeconds"] < 300


# What is set with --set-json, and what the error names.
WRONG = [
    ("clusters=1", "'/clusters'"),
    ("nestedClusters.enabled=true", "'/clusters'"),
    ("nestedClusters.fleet=true", "'/nestedClusters/fleet'"),
    ('nestedClusters.enabled="no"', "'/nestedClusters/enabled'"),
    ("nestedClusters.number=3", "'number'"),
    ("federation.enabled=true", "'/federation/enabled'"),
    ('hostCluster.nodes="some"', "'/hostCluster/nodes'"),
    ('hostCluster.node="fleet"', "'node'"),
    ("hostCluster.system=3", "'/hostCluster/system'"),
]


@pytest.mark.parametrize(("wrong", "key"), WRONG, ids=[each[0] for each in WRONG])
def test_a_wrong_value_for_the_host_cluster_is_refused_by_name(
    helm: Helm, wrong: str, key: str
) -> None:
    with pytest.raises(HelmFailed, match="values don't meet the specifications") as refused:
        template(helm, HOST, "--set-json", wrong)
    assert key in str(refused.value)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--set", "hostCluster.system=bigfleet"), "bigfleet needs nested clusters"),
        (("--set", "hostCluster.system=karpenter"), "karpenter needs nested clusters"),
        (("--set", "overrides={clusters=2}"), "clusters=2: the host cluster is one"),
        (("--set", "overrides={system=bigfleet}"), "write hostCluster.system"),
        (("--set", "overrides={none.nodes=existing}"), "write hostCluster.nodes"),
        (("--is-upgrade",), "a release is one run: helm uninstall st"),
    ],
)
def test_what_the_host_cluster_cannot_have_is_refused_with_the_reason(
    helm: Helm, flags: tuple[str, ...], why: str
) -> None:
    with pytest.raises(HelmFailed, match=why):
        template(helm, HOST, *flags)


@pytest.mark.parametrize(
    ("name", "overrides", "system"),
    [
        ("smoke", NONE, "none"),
        ("smoke", ("none.nodes=existing", "soak.seconds=5", *NONE), "none"),
        ("dev-50", ("clusters=1", "anchors=off", "system=command"), "command"),
    ],
)
def test_the_chart_takes_the_values_that_the_harness_prints(
    helm: Helm, tmp_path: Path, name: str, overrides: tuple[str, ...], system: str
) -> None:
    """And plays the same profile."""
    values = host_values(name, *overrides, seed=7)
    assert (values["clusters"], values["hostCluster"]["system"]) == (0, system)
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    found = container(template(helm, file), "runner")
    options = run_options(build_parser().parse_args(found["args"]))
    again = load_profile(options.profile, PROFILES, options.overrides, options.seed)
    wanted = load_profile(name, PROFILES, overrides, 7)
    assert again.settings == wanted.settings
    assert found["resources"]["requests"]["memory"].endswith("Mi")


@pytest.mark.parametrize(
    ("name", "overrides", "why"),
    [
        ("smoke", (), "system: bigfleet needs nested clusters"),
        ("smoke", ("system=karpenter",), "system: karpenter needs nested clusters"),
        ("dev-50", ("anchors=off", *NONE), "it has 2 clusters, and the host cluster is one"),
        (
            "smoke",
            ("system=command", "command.start=./autoscaler"),
            "command.start: the runner's pod has nothing but the harness",
        ),
    ],
)
def test_a_profile_that_the_host_cluster_cannot_have_gets_no_values(
    name: str, overrides: tuple[str, ...], why: str
) -> None:
    with pytest.raises(ProfileError, match=why):
        host_values(name, *overrides)


def test_the_values_say_how_they_were_printed() -> None:
    text = host_cluster_heading(load_profile("smoke", PROFILES, NONE), NONE)
    assert "loaddriver chart-values smoke --substrate existing --set system=none" in text
    assert all(line.startswith("#") for line in text.splitlines())
