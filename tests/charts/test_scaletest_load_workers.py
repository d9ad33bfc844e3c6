"""Several workers of a load are pods of charts/scaletest, which reach no more than they need."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import pytest
import yaml

from loaddriver.profile.loading import load_profile
from loaddriver.run.chart_values import chart_values
from loaddriver.substrates.base import SubstrateError
from loaddriver.substrates.pods.places import Places, check_load_workers
from tests.charts.helm_rig import ROOT, SCALETEST, VALUES, Helm, Object, of_kind

RELEASE = NAMESPACE = "st"
COMPONENT = "app.kubernetes.io/component"
WORKER = f"{RELEASE}-load-worker"
NAMES = [f"{WORKER}-0", f"{WORKER}-1", f"{WORKER}-2"]


@cache
def release(helm: Helm, workers: int) -> list[Object]:
    """The objects of a release of two clusters; not to be changed."""
    files = (VALUES / "scaletest.yaml", SCALETEST / "values" / "dev-50.yaml")
    given = [flag for file in files for flag in ("-f", str(file))]
    more = (*given, "--set", f"load.workers={workers}")
    text = helm.run("template", RELEASE, SCALETEST, "-n", NAMESPACE, *more)
    return [each for each in yaml.safe_load_all(text) if each]


def named(objects: list[Object], kind: str, name: str) -> Any:
    [found] = [each for each in of_kind(objects, kind) if each["metadata"]["name"] == name]
    return found["spec"]


def pod(objects: list[Object], kind: str, name: str) -> tuple[Object, Object]:
    """Its spec, and its only container."""
    spec = named(objects, kind, name)["template"]["spec"]
    [container] = spec["containers"]
    return spec, container


def flag(container: Object, name: str) -> str:
    [value] = [each.partition("=")[2] for each in container["args"] if each.startswith(f"{name}=")]
    return str(value)


def places(objects: list[Object]) -> Places:
    [found] = [each for each in of_kind(objects, "ConfigMap") if "places.yaml" in each["data"]]
    return msgspec.yaml.decode(found["data"]["places.yaml"].encode(), type=Places)


def test_one_worker_is_a_process_of_the_runner_and_has_no_objects(helm: Helm) -> None:
    """Nor is there a port that nobody needs."""
    objects = release(helm, 1)
    assert not [each for each in objects if "load-worker" in yaml.safe_dump(each)]
    assert f"{RELEASE}-runner" not in {
        each["metadata"]["name"] for each in of_kind(objects, "Service")
    }
    _, runner = pod(objects, "Job", f"{RELEASE}-runner")
    assert "ports" not in runner
    assert not [each for each in runner["args"] if each.startswith("--load-listen")]
    check_load_workers(places(objects), 1)


def test_several_workers_are_as_many_pods_under_names_that_the_runner_knows(helm: Helm) -> None:
    """They start at once, and are started again if they end."""
    objects = release(helm, 3)
    workers = named(objects, "StatefulSet", WORKER)
    assert (workers["replicas"], workers["podManagementPolicy"]) == (3, "Parallel")
    assert "restartPolicy" not in workers["template"]["spec"]
    _, container = pod(objects, "StatefulSet", WORKER)
    assert (container["name"], flag(container, "--name")) == ("load-worker", "$(POD_NAME)")
    assert list(places(objects).load_workers) == NAMES
    check_load_workers(places(objects), 3)


@pytest.mark.parametrize(("there", "wanted"), [(1, 3), (3, 1), (3, 2)])
def test_a_release_with_other_workers_than_the_profile_is_refused(
    helm: Helm, there: int, wanted: int
) -> None:
    """One that is missing would be waited for, and one too many would take another's place."""
    told = places(release(helm, there))
    with pytest.raises(SubstrateError, match=f"wants {wanted} workers.*the release has {there}"):
        check_load_workers(told, wanted)


def test_workers_find_the_runner_where_it_listens(helm: Helm) -> None:
    objects = release(helm, 3)
    _, worker = pod(objects, "StatefulSet", WORKER)
    _, runner = pod(objects, "Job", f"{RELEASE}-runner")
    host, _, port = flag(worker, "--master").rpartition(":")
    service, namespace, *domain = host.split(".")
    assert (namespace, domain) == (NAMESPACE, ["svc", "cluster", "local"])
    found = named(objects, "Service", service)
    assert (found["clusterIP"], found["selector"][COMPONENT]) == ("None", "runner")
    [listening] = runner["ports"]
    [served] = found["ports"]
    assert served["targetPort"] == listening["name"]
    assert served["port"] == listening["containerPort"] == int(port)
    assert flag(runner, "--load-listen") == f"0.0.0.0:{port}"


def test_workers_have_one_identity_in_each_nested_cluster_and_none_in_this_one(helm: Helm) -> None:
    """That of the load driver, in the files that `--kubeconfigs` expects."""
    spec, container = pod(release(helm, 3), "StatefulSet", WORKER)
    [folder] = [
        mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "access"
    ]
    assert flag(container, "--kubeconfigs") == folder
    assert spec["automountServiceAccountToken"] is False
    [access] = [each["projected"] for each in spec["volumes"] if "projected" in each]
    secrets = [source["secret"] for source in access["sources"]]
    assert [secret["name"] for secret in secrets] == ["st-c1-access", "st-c2-access"]
    assert [secret["items"] for secret in secrets] == [
        [{"key": "load-driver.kubeconfig", "path": f"{name}/load-driver.kubeconfig"}]
        for name in ("c1", "c2")
    ]


def ways(rules: list[Object]) -> set[tuple[str, str]]:
    """The ports, and the components behind or before them; without those of DNS."""
    return {
        (str(port["port"]), peer["podSelector"]["matchLabels"][COMPONENT])
        for rule in rules
        for port in rule["ports"]
        if port["port"] != 53
        for peer in (*rule.get("from", ()), *rule.get("to", ()))
    }


def test_only_workers_reach_the_master_and_they_reach_only_it_and_nested_clusters(
    helm: Helm,
) -> None:
    """Locust's messages are not authenticated."""
    objects = release(helm, 3)
    worker, runner, cluster = (
        named(objects, "NetworkPolicy", f"{RELEASE}-{name}")
        for name in ("load-worker", "runner", "cluster")
    )
    assert ways(runner["ingress"]) == {("load", "load-worker")}
    assert worker["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in worker
    assert ways(worker["egress"]) == {("5557", "runner"), ("6443", "cluster")}
    assert ("api", "load-worker") in ways(cluster["ingress"])
    assert "ingress" not in named(release(helm, 1), "NetworkPolicy", f"{RELEASE}-runner")


def test_no_worker_is_evicted_and_they_are_spread(helm: Helm) -> None:
    """A run does not survive the end of one."""
    objects = release(helm, 3)
    budget = named(objects, "PodDisruptionBudget", WORKER)
    assert budget["maxUnavailable"] == 0
    spec, _ = pod(objects, "StatefulSet", WORKER)
    spread = {each["topologyKey"] for each in spec["topologySpreadConstraints"]}
    assert spread == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
    labels = named(objects, "StatefulSet", WORKER)["template"]["metadata"]["labels"]
    for each in (
        budget["selector"],
        *(c["labelSelector"] for c in spec["topologySpreadConstraints"]),
    ):
        assert each["matchLabels"] == labels


@pytest.mark.parametrize(("workers", "expected"), [(1, {}), (4, {"load": {"workers": 4}})])
def test_the_values_of_a_profile_have_its_workers(workers: int, expected: dict[str, Any]) -> None:
    overrides = (f"load.workers={workers}",)
    found = chart_values(load_profile("smoke", ROOT / "profiles", overrides), overrides, None)
    assert {key: value for key, value in found.items() if key == "load"} == expected
    assert found["overrides"] == list(overrides)
