"""What a Pod list says of containers that ended."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from loaddriver.substrates.base import describe_exit
from loaddriver.substrates.pods.containers import (
    Container,
    Exit,
    Metadata,
    Status,
    container_of,
    exits,
)

SHARD = "shard-0"
LIVING = {SHARD: "containerd://1"}


def shard(identity: str = "containerd://1", **status: Any) -> Container:
    found = msgspec.convert({"name": "shard", "containerID": identity, **status}, type=Status)
    return container_of(Metadata("shard-0-0"), found, SHARD)


def ended(exit_code: int) -> dict[str, Any]:
    return {"terminated": {"exitCode": exit_code, "reason": "Error"}}


def noted(*containers: Container) -> list[Exit]:
    return list(exits(LIVING, {each.component: each for each in containers}))


def test_containers_that_run_on_are_no_deaths() -> None:
    assert noted(shard()) == []


def test_a_container_that_was_started_again_has_died() -> None:
    """The node restarts it within seconds; what counts is that it is another one."""
    assert noted(shard("containerd://2", lastState=ended(137))) == [Exit(SHARD, -9)]


def test_a_container_that_waits_for_its_restart_has_died() -> None:
    assert noted(shard(state=ended(1))) == [Exit(SHARD, 1)]


def test_even_a_clean_end_is_a_death() -> None:
    assert noted(shard(state=ended(0))) == [Exit(SHARD, 0)]


def test_a_container_that_is_gone_has_died() -> None:
    assert noted() == [Exit(SHARD, None)]
    assert describe_exit(None) == "is gone"


def test_what_nobody_looks_after_may_end() -> None:
    assert list(exits({}, {SHARD: shard(state=ended(1))})) == []


@pytest.mark.parametrize(
    ("reason", "stuck"),
    [
        ("ContainerCreating", ""),
        ("CrashLoopBackOff", ""),
        ("ErrImageNeverPull", "ErrImageNeverPull: not present"),
    ],
)
def test_a_start_is_given_up_only_if_waiting_cannot_help(reason: str, stuck: str) -> None:
    waiting = {"waiting": {"reason": reason, "message": "not present"}}
    assert shard(state=waiting).stuck == stuck
