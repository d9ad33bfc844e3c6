"""What a list of Pods says of their containers, and which of them have ended: pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from loaddriver.substrates.base import describe_exit
from loaddriver.substrates.kind.manifests import COMPONENT_ANNOTATION

# kubeadm's label on the parts of a control plane.
_CONTROL_PLANE_LABEL = "component"
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
    restart_count: int = 0
    container_id: str = msgspec.field(default="", name="containerID")
    state: _State = msgspec.field(default_factory=_State)
    last_state: _State = msgspec.field(default_factory=_State)


class Metadata(msgspec.Struct, rename="camel"):
    """Whose container it is."""

    name: str
    namespace: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None


class _PodStatus(msgspec.Struct, rename="camel"):
    container_statuses: list[Status] = []
    init_container_statuses: list[Status] = []


class Pod(msgspec.Struct):
    """As much of a Pod as tells whether its containers live."""

    metadata: Metadata
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class _PodList(msgspec.Struct):
    items: list[Pod]


@dataclass(frozen=True)
class Container:
    """One container of a component as its node last reported it.

    `identity` changes with every start; `restarts` counts them within its pod. `ended` is the exit
    code of this very start, `ended_before` that of the start before it; None while there is none.
    `stuck` says why it cannot start.
    """

    component: str
    namespace: str
    pod: str
    name: str
    identity: str
    restarts: int
    ended: int | None
    ended_before: int | None
    stuck: str


@dataclass(frozen=True)
class Exit:
    """A component's container ended; `returncode` as in subprocess, None if nobody saw it."""

    component: str
    returncode: int | None


def read_containers(cluster: str, body: bytes) -> dict[str, Container]:
    """The containers of a Pod list's body by component; Pods that are being deleted left out."""
    pods = msgspec.json.decode(body, type=_PodList).items
    return {
        container.component: container
        for pod in pods
        if pod.metadata.deletion_timestamp is None
        for container in _containers(cluster, pod)
    }


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


def start_failure(container: Container, former: Container | None) -> str:
    """Why a container that was just started will not come up; "" while it still may.

    `former` is how it was before it ended as declared; None for one that is started first.
    """
    if container.stuck:
        return f"cannot start: {container.stuck}"
    if former is not None and container.identity == former.identity:
        return ""
    if container.ended is not None:
        return describe_exit(_returncode(container.ended))
    restarts = 0 if former is None else former.restarts + 1
    if container.restarts > restarts:
        return describe_exit(_returncode(container.ended_before))
    return ""


def _returncode(exit_code: int | None) -> int | None:
    if exit_code is None or exit_code <= _SIGNAL_BASE:
        return exit_code
    return _SIGNAL_BASE - exit_code


def _containers(cluster: str, pod: Pod) -> Iterable[Container]:
    for status in pod.status.container_statuses:
        component = _component(cluster, pod.metadata, status.name)
        yield container_of(pod.metadata, status, component)


def container_of(pod: Metadata, status: Status, component: str) -> Container:
    """The container with that status in its pod."""
    waiting = status.state.waiting
    return Container(
        component=component,
        namespace=pod.namespace,
        pod=pod.name,
        name=status.name,
        identity=status.container_id,
        restarts=status.restart_count,
        ended=_exit_code(status.state),
        ended_before=_exit_code(status.last_state),
        stuck=f"{waiting.reason}: {waiting.message}"
        if waiting and waiting.reason in _HOPELESS
        else "",
    )


def _component(cluster: str, metadata: Metadata, container: str) -> str:
    if COMPONENT_ANNOTATION in metadata.annotations:
        return metadata.annotations[COMPONENT_ANNOTATION]
    if _CONTROL_PLANE_LABEL in metadata.labels:
        return f"{cluster}/{metadata.labels[_CONTROL_PLANE_LABEL]}"
    alone = metadata.name.startswith(container)
    return f"{cluster}/{metadata.name}" + ("" if alone else f"/{container}")


def _exit_code(state: _State) -> int | None:
    return None if state.terminated is None else state.terminated.exit_code
