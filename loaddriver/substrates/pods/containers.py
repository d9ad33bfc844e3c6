"""What a list of Pods says of their containers, and which of them have ended: pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

# From 128 on an exit code is that of a signal.
_SIGNAL_BASE = 128
# Reasons for which a container waits that waiting does not cure.
_HOPELESS = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)


class _Terminated(msgspec.Struct, rename="camel"):
    exit_code: int = 0


class _Waiting(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _State(msgspec.Struct):
    terminated: _Terminated | None = None
    waiting: _Waiting | None = None


class Status(msgspec.Struct, rename="camel"):
    """A container as its node reports it."""

    name: str
    container_id: str = msgspec.field(default="", name="containerID")
    state: _State = msgspec.field(default_factory=_State)
    last_state: _State = msgspec.field(default_factory=_State)


class Metadata(msgspec.Struct, rename="camel"):
    """Whose container it is."""

    name: str
    deletion_timestamp: str | None = None


class _PodStatus(msgspec.Struct, rename="camel"):
    phase: str = ""
    message: str = ""
    container_statuses: list[Status] = []
    init_container_statuses: list[Status] = []


class Pod(msgspec.Struct):
    """As much of a Pod as tells whether its containers live."""

    metadata: Metadata
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


@dataclass(frozen=True)
class Container:
    """One container of a component as its node last reported it.

    `identity` changes with every start, and is "" before the first. `ended` is the exit code of
    this very start, `ended_before` that of the start before it; None while there is none. `stuck`
    says why it cannot start.
    """

    component: str
    pod: str
    name: str
    identity: str
    ended: int | None
    ended_before: int | None
    stuck: str


@dataclass(frozen=True)
class Exit:
    """A component's container ended; `returncode` as in subprocess, None if nobody saw it."""

    component: str
    returncode: int | None


def exits(living: Mapping[str, str], seen: Mapping[str, Container]) -> Iterator[Exit]:
    """Which of the `living` components (identity by name) have ended since."""
    for component, identity in living.items():
        container = seen.get(component)
        if container is None:
            yield Exit(component, None)
        elif container.identity != identity:
            yield Exit(component, _returncode(container.ended_before))
        elif container.ended is not None:
            yield Exit(component, _returncode(container.ended))


def container_of(pod: Metadata, status: Status, component: str) -> Container:
    """The container with that status in its pod."""
    waiting = status.state.waiting
    return Container(
        component=component,
        pod=pod.name,
        name=status.name,
        identity=status.container_id,
        ended=_exit_code(status.state),
        ended_before=_exit_code(status.last_state),
        stuck=f"{waiting.reason}: {waiting.message}"
        if waiting and waiting.reason in _HOPELESS
        else "",
    )


def _returncode(exit_code: int | None) -> int | None:
    if exit_code is None or exit_code <= _SIGNAL_BASE:
        return exit_code
    return _SIGNAL_BASE - exit_code


def _exit_code(state: _State) -> int | None:
    return None if state.terminated is None else state.terminated.exit_code
