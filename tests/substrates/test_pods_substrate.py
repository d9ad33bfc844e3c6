"""The runner in a pod trusts nothing that it is not told, and says what differs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from controlplane.request import request_from
from loaddriver.substrates.base import RoleSpec, SubstrateError
from loaddriver.substrates.choice import SubstrateName, obtain_prerequisites
from loaddriver.substrates.pods import pod_health
from loaddriver.substrates.pods.containers import Container
from loaddriver.substrates.pods.places import RELEASE_VARIABLE, obtain
from loaddriver.substrates.pods.pod_health import PodHealth
from loaddriver.substrates.pods.pod_states import (
    PodContainer,
    constant_flags,
    differing_flags,
    read_pods,
)
from tests.support.waiting import eventually

ROLE = RoleSpec("shard-0", ["shard", "--shard-id", "shard-0", "--cycle", "1", "--state", "{state}"])


def test_outside_of_the_chart_the_substrate_is_refused() -> None:
    with pytest.raises(SubstrateError, match="charts/scaletest"):
        obtain_prerequisites(SubstrateName.PODS, request_from({"HOME": "/nowhere"}), lambda _: None)


def test_what_the_chart_wrote_wrongly_is_named(tmp_path: Path) -> None:
    (tmp_path / "places").mkdir()
    (tmp_path / "places" / "places.yaml").write_text("namespace: st\nclusterz: []\n")
    with pytest.raises(SubstrateError, match=r"places\.yaml.*(clusterz|owner)"):
        obtain({RELEASE_VARIABLE: str(tmp_path)})


@pytest.mark.parametrize(
    "arguments",
    [
        ["shard", "--shard-id=st-shard-0", "--cycle=1", "--state=/x"],
        ["shard", "--cycle", "1.0", "--more"],
    ],
)
def test_a_role_with_the_flags_of_the_profile_is_accepted(arguments: list[str]) -> None:
    """However they are written; places and names may differ."""
    assert list(differing_flags(ROLE, arguments)) == []


@pytest.mark.parametrize(
    ("arguments", "difference"),
    [
        (["shard", "--cycle=2"], "--cycle is 2, the profile wants 1"),
        (["shard"], "--cycle is not set, the profile wants 1"),
    ],
)
def test_a_role_with_other_flags_is_refused_by_name(arguments: list[str], difference: str) -> None:
    assert list(differing_flags(ROLE, arguments)) == [difference]


def test_flags_that_depend_on_the_place_are_not_the_profiles() -> None:
    assert constant_flags(ROLE) == {"--cycle": "1"}


def pod(**status: Any) -> bytes:
    spec = {
        "initContainers": [{"name": "etcd", "args": ["--name=etcd"]}],
        "containers": [{"name": "operator", "args": ["operator"]}],
    }
    metadata = {"name": "st-c1-0", "namespace": "st"}
    return json.dumps({"items": [{"metadata": metadata, "spec": spec, "status": status}]}).encode()


COMPONENTS = {("st-c1-0", "etcd"): "c1/etcd", ("st-c1-0", "operator"): "c1/operator"}


def test_containers_are_found_also_among_those_that_start_first() -> None:
    """etcd is an init container that goes on; what is of no component, such as `files`, is not."""
    body = pod(
        initContainerStatuses=[{"name": "etcd", "containerID": "1", "state": {}}],
        containerStatuses=[
            {"name": "operator", "containerID": "2", "state": {"terminated": {"exitCode": 137}}},
            {"name": "files", "containerID": "3", "state": {}},
        ],
    )
    found = read_pods(body, COMPONENTS)
    assert set(found) == {"c1/etcd", "c1/operator"}
    assert found["c1/etcd"].arguments == ("--name=etcd",)
    assert found["c1/operator"].container.ended == 137


def test_a_pod_that_is_being_deleted_does_not_count() -> None:
    body = pod(containerStatuses=[{"name": "operator", "containerID": "2"}]).replace(
        b'"name": "st-c1-0"', b'"name": "st-c1-0", "deletionTimestamp": "2026-01-01T00:00:00Z"'
    )
    assert read_pods(body, COMPONENTS) == {}


def container(component: str, identity: str) -> PodContainer:
    return PodContainer(Container(component, "p", "c", identity, None, 137, ""), ("arguments",))


async def followed(
    log: Path, states: Sequence[Mapping[str, PodContainer]], monkeypatch: pytest.MonkeyPatch
) -> PodHealth:
    """A monitor that has seen all the states, one after the other."""
    monkeypatch.setattr(pod_health, "_POLL_SECONDS", 0.001)
    left = list(states)

    async def read() -> Mapping[str, PodContainer]:
        return left.pop(0) if len(left) > 1 else left[0]

    health = PodHealth(read, SURVIVE, log)
    await health.start()
    await eventually(lambda: len(left) == 1)
    await asyncio.sleep(0.01)
    return health


SURVIVE = ("shard-0", "coordinator-1")


@pytest.mark.parametrize("component", SURVIVE)
async def test_a_shard_or_coordinator_may_restart_and_its_restart_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, component: str
) -> None:
    """It keeps its state in a volume; meanwhile it may have no pod at all, or one that waits."""
    log = tmp_path / "restarts.log"
    states = [
        {component: container(component, "1")},
        {},
        {component: container(component, "")},
        {component: container(component, "2")},
    ]
    health = await followed(log, states, monkeypatch)
    await eventually(log.exists, "the restart's line")
    assert log.read_text().count(f"{component} was restarted") == 1
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(health.first_exit(), 0.05)
    await health.stop()


async def test_a_nested_cluster_that_restarts_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it held was in memory."""
    states = [{"c1/etcd": container("c1/etcd", "1")}, {"c1/etcd": container("c1/etcd", "2")}]
    health = await followed(tmp_path / "log", states, monkeypatch)
    exit, _ = await asyncio.wait_for(health.first_exit(), 60)
    assert (exit.component, exit.returncode) == ("c1/etcd", -9)
    await health.stop()
