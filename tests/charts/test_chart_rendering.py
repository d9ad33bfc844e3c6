"""The charts are valid in themselves, and their values are documented."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.charts.helm_rig import (
    CASES,
    CHARTS,
    FLEET,
    NAMESPACES,
    ROOT,
    VALUES,
    Helm,
    of_kind,
    replicas,
)
from tests.charts.settings_rig import keys, schema_keys

EACH_CASE = pytest.mark.parametrize(("chart", "values"), CASES, ids=lambda path: path.stem)
EACH_CHART = pytest.mark.parametrize("chart", CHARTS, ids=lambda path: path.name)
# Only with the simulated provider, where `address` must not be set.
NOT_WITH_EVERYTHING = {"provider.simulated"}


@EACH_CASE
def test_lint_finds_nothing_also_when_it_is_strict(helm: Helm, chart: Path, values: Path) -> None:
    found = helm.run("lint", "--strict", chart, "-n", NAMESPACES[chart], "-f", values)
    assert "0 chart(s) failed" in found


@EACH_CHART
def test_a_chart_has_the_version_of_the_product(chart: Path) -> None:
    described = yaml.safe_load((chart / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert described["version"] == described["appVersion"] == project["version"]


@EACH_CHART
def test_the_schema_has_exactly_the_keys_that_are_documented(chart: Path) -> None:
    """So that an unknown key is refused, and no key is refused that the defaults have."""
    schema = yaml.safe_load((chart / "values.schema.json").read_text())
    documented = set(keys(yaml.safe_load((chart / "values.yaml").read_text())))
    taken = set(schema_keys(schema, schema)) - {"global"}
    # What is empty by default has no keys of its own there.
    assert {key for key in taken if not key.startswith("shard.ceilings.")} - documented <= set()
    assert documented - taken <= {"shard.ceilings"}


@EACH_CHART
def test_a_comment_explains_each_key(chart: Path) -> None:
    """It stands above the key; `limits` are explained with the requests above them."""
    lines = (chart / "values.yaml").read_text().splitlines()
    for number, line in enumerate(lines):
        key = re.match(r" *([A-Za-z]+):", line)
        if key and key[1] != "limits":
            assert lines[number - 1].lstrip().startswith("#"), f"line {number + 1}: {line}"


@EACH_CHART
def test_the_values_that_change_everything_do_so(chart: Path) -> None:
    """Else a key that is never set could be rendered wrongly and no test would see it."""
    name = "fleet-everything" if chart.name == "bigfleet" else "cluster-everything"
    changed = yaml.safe_load((VALUES / f"{name}.yaml").read_text())
    default = yaml.safe_load((chart / "values.yaml").read_text())
    missing = {
        key
        for key in set(keys(default)) - set(keys(changed))
        if not any(key.startswith(prefix) for prefix in NOT_WITH_EVERYTHING)
    }
    # A whole group of the user's own keys, or those whose default another values file changes.
    assert missing <= {
        "shard.ceilings",
        "identity.certManager.issuer.group",
        "coordinator.resources.limits",
        "coordinator.resources.requests",
        "networkPolicy.enabled",
        "podController.enabled",
    }


@EACH_CASE
def test_probes_ask_the_port_that_the_role_observes_on(
    helm: Helm, chart: Path, values: Path
) -> None:
    for replica in replicas(helm.template(chart, values)):
        ports = {each["name"]: each["containerPort"] for each in replica.container["ports"]}
        assert replica.flag("--observe") == f"0.0.0.0:{ports['observe']}"
        if "grpc" in ports:
            assert replica.flag("--listen") == f"0.0.0.0:{ports['grpc']}"
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert replica.container[probe]["httpGet"]["port"] == "observe"


@EACH_CASE
def test_every_selector_selects_pods_of_the_chart(helm: Helm, chart: Path, values: Path) -> None:
    """A Service, budget or policy whose labels are misspelt is accepted, and does nothing."""
    objects = helm.template(chart, values)
    pods = [
        {**each.workload["spec"]["template"]["metadata"]["labels"], "pod": each.name}
        for each in replicas(objects)
    ]
    selecting = of_kind(objects, "Service", "PodDisruptionBudget", "NetworkPolicy", "PodMonitor")
    assert selecting
    for each in selecting:
        spec = each["spec"]
        selector = dict(spec.get("podSelector", spec.get("selector")))
        selector = selector.get("matchLabels", selector)
        if name := selector.pop("statefulset.kubernetes.io/pod-name", ""):
            selector["pod"] = name
        assert any(selector.items() <= pod.items() for pod in pods), each["metadata"]["name"]


@EACH_CASE
def test_a_monitor_scrapes_a_port_that_exists(helm: Helm, chart: Path, values: Path) -> None:
    objects = helm.template(chart, values)
    services = of_kind(objects, "Service")
    for monitor in of_kind(objects, "ServiceMonitor"):
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        ports = [
            {port["name"] for port in each["spec"]["ports"]}
            for each in services
            if wanted <= each["metadata"]["labels"].items()
        ]
        assert sum("observe" in each for each in ports) == 2  # coordinators, shards
    for monitor in of_kind(objects, "PodMonitor"):
        [endpoint] = monitor["spec"]["podMetricsEndpoints"]
        for replica in replicas(objects):
            assert endpoint["port"] in {port["name"] for port in replica.container["ports"]}


@EACH_CHART
def test_monitors_and_certificates_are_rendered_only_on_request(helm: Helm, chart: Path) -> None:
    """They fail where their CRDs do not exist."""
    optional = ("ServiceMonitor", "PodMonitor", "Certificate")
    for case, values in CASES:
        if case == chart:
            found = of_kind(helm.template(chart, values), *optional)
            assert bool(found) == values.stem.endswith("everything")


@pytest.mark.parametrize(
    ("values", "ports"), [("fleet-everything", {9000, 9001}), ("fleet-simulated", {7790, 9001})]
)
def test_a_shard_may_reach_each_of_its_providers(helm: Helm, values: str, ports: set[int]) -> None:
    """Besides the coordinators and DNS."""
    others = ("--set-json", 'provider.others=["cloud.example.com:9001"]')
    policies = ("--set", "networkPolicy.enabled=true")
    objects = helm.template(FLEET, VALUES / f"{values}.yaml", *others, *policies)
    [policy] = [
        each
        for each in of_kind(objects, "NetworkPolicy")
        if each["metadata"]["name"].endswith("-shard")
    ]
    allowed = {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]}
    assert allowed - {53, 7791} == ports
