"""What the API server's Pod list says of containers that ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loaddriver.substrates.base import UnexpectedExit, describe_exit
from loaddriver.substrates.kind.containers import (
    Container,
    Exit,
    exits,
    read_containers,
    start_failure,
)
from tests.substrates.kind_substrate_rig import ended, pod, pod_list, running, waiting

SHARD, SCHEDULER = "shard-0", "c1/kube-scheduler"


def seen(*pods: dict[str, Any]) -> dict[str, Any]:
    return dict(read_containers("c1", pod_list(*pods)))


def noted(living: dict[str, str], *pods: dict[str, Any]) -> list[Exit]:
    return list(exits(living, read_containers("c1", pod_list(*pods))))


def shard(*statuses: dict[str, Any], **more: Any) -> dict[str, Any]:
    return pod("shard-0-0", *statuses, component=SHARD, **more)


def test_components_are_called_as_reports_call_them() -> None:
    """Roles by their own names, the rest by cluster; several containers of a pod stay apart."""
    found = seen(
        shard(running("shard-0")),
        pod("kube-scheduler-c1-x", running("kube-scheduler"), label="kube-scheduler"),
        pod("coredns-5d-abc", running("coredns"), namespace="kube-system"),
        pod("provisioner-1", running("helper"), namespace="local-path-storage"),
    )
    assert set(found) == {SHARD, SCHEDULER, "c1/coredns-5d-abc", "c1/provisioner-1/helper"}


def test_containers_that_run_on_are_no_deaths() -> None:
    assert noted({SHARD: "containerd://1"}, shard(running("shard-0"))) == []


def test_a_container_that_was_started_again_has_died() -> None:
    """The node restarts it within seconds; what counts is that it is another one."""
    again = running("shard-0", "2", lastState=ended(137))
    assert noted({SHARD: "containerd://1"}, shard(again)) == [Exit(SHARD, -9)]


def test_a_container_that_waits_for_its_restart_has_died() -> None:
    down = {**running("shard-0"), "state": ended(1)}
    assert noted({SHARD: "containerd://1"}, shard(down)) == [Exit(SHARD, 1)]


def test_even_a_clean_end_is_a_death() -> None:
    down = {**running("shard-0"), "state": ended(0)}
    assert noted({SHARD: "containerd://1"}, shard(down)) == [Exit(SHARD, 0)]


def test_a_pod_that_is_gone_or_being_deleted_has_died() -> None:
    leaving = shard(running("shard-0"), deletionTimestamp="2026-11-21T08:00:00Z")
    assert noted({SHARD: "containerd://1"}, leaving) == [Exit(SHARD, None)]
    assert noted({SHARD: "containerd://1"}) == [Exit(SHARD, None)]


def test_what_nobody_looks_after_may_end() -> None:
    assert noted({}, shard({**running("shard-0"), "state": ended(1)})) == []


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        (running("shard-0"), ""),
        ({"name": "shard-0", "state": waiting("ContainerCreating")}, ""),
        (
            {"name": "shard-0", "state": waiting("ErrImageNeverPull", "not present")},
            "cannot start: ErrImageNeverPull: not present",
        ),
        ({**running("shard-0"), "state": ended(2)}, "ended with exit code 2"),
        (
            {
                **running("shard-0", restartCount=1),
                "state": waiting("CrashLoopBackOff"),
                "lastState": ended(1),
            },
            "ended with exit code 1",
        ),
    ],
)
def test_a_start_fails_as_soon_as_it_cannot_succeed(status: dict[str, Any], failure: str) -> None:
    """Nobody waits for a deadline when the reason is known."""
    assert start_failure(only(status), None) == failure


def test_a_start_after_a_declared_exit_is_judged_by_itself() -> None:
    """The exit that was asked for is no failure of the start that follows; another one is."""
    former = only(running("shard-0", "1"))
    down = {**running("shard-0", "1"), "state": ended(137)}
    up = running("shard-0", "2", restartCount=1, lastState=ended(137))
    down_again = {**running("shard-0", "2", restartCount=1), "state": ended(2)}
    looping = running("shard-0", "3", restartCount=2, lastState=ended(2))
    moved = running("shard-0", "4")
    failures = [
        start_failure(only(status), former) for status in (down, up, moved, down_again, looping)
    ]
    assert failures == ["", "", "", "ended with exit code 2", "ended with exit code 2"]


def only(status: dict[str, Any]) -> Container:
    [container] = read_containers("c1", pod_list(shard(status))).values()
    return container


def test_a_death_says_who_how_and_where_everything_lies() -> None:
    log, bundle = Path("/r/logs/shard-0.log"), Path("/r/logs/bundle/c1")
    unexpected_exit = UnexpectedExit(SHARD, -9, log, ("last",), bundle)
    assert unexpected_exit.sentence == (
        "shard-0 was killed by SIGKILL; its log: /r/logs/shard-0.log; "
        "diagnostics: /r/logs/bundle/c1"
    )
    assert describe_exit(None) == "is gone"
