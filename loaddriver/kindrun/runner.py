"""The runner of a release: its pod is awaited, its words are passed on, and its exit code read."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from itertools import islice

import msgspec

from kind.errors import KindError
from loaddriver.kindrun.node import Node
from loaddriver.substrates.base import SubstrateError
from loaddriver.substrates.pods.containers import Container, Pod, container_of

RELEASE, NAMESPACE = "run", "scaletest"
_JOB = f"{RELEASE}-runner"
_IN = f"--namespace={NAMESPACE}"
# It waits by itself for all other parts; it needs its image and its Secrets only.
_START_SECONDS = 600.0
_POLL_SECONDS = 1.0
# An API server on full cores may leave questions unanswered, and a run goes on without it.
_SILENCE_SECONDS = 120.0
# Longer than a pod's grace period.
_END_SECONDS = 60.0


class _PodList(msgspec.Struct):
    items: list[Pod]


class Runner:
    """The runner of the release on this node; `say` gets its words."""

    def __init__(self, node: Node, say: Callable[[str], None]) -> None:
        self._node, self._say = node, say
        self._said = 0
        self.started = self._ended = False

    def follow(self) -> int:
        """Wait for its start, then pass on what it says until it ends; its exit code.

        Raises SubstrateError if it cannot start or disappears.
        """
        container = self._await_start()
        self.started = True
        while True:
            container = self._container() or container  # read first: all that it said follows
            self._pass_on(container.pod)
            if container.ended is not None:
                self._ended = True
                return container.ended
            time.sleep(_POLL_SECONDS)

    def end(self) -> None:
        """Have it stop and write its report, if it runs."""
        if self.started and not self._ended:
            with suppress(KindError):
                arguments = ("delete", "job", _JOB, _IN, "--cascade=foreground")
                self._node.kubectl(*arguments, timeout_seconds=_END_SECONDS)

    def _await_start(self) -> Container:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            container = self._container()
            if container is not None and container.stuck:
                raise SubstrateError(f"the runner cannot start: {container.stuck}")
            if container is not None and container.identity:
                return container
            if time.monotonic() > deadline:
                what = "has no container" if container is None else "has not started"
                raise SubstrateError(f"the runner {what} after {_START_SECONDS:g} s")
            time.sleep(_POLL_SECONDS)

    def _pass_on(self, pod: str) -> None:
        """What it said since, until it ends or the connection does."""
        lines = self._node.lines("logs", pod, _IN, "--follow")
        for line in islice(lines, self._said, None):
            self._say(line)
            self._said += 1

    def _container(self) -> Container | None:
        """None before it has one."""
        for pod in msgspec.json.decode(self._pods(), type=_PodList).items:
            for status in pod.status.container_statuses:
                return container_of(pod.metadata, status, "runner")
            if pod.status.phase == "Failed":
                raise SubstrateError(f"the runner's pod has failed: {pod.status.message}")
        if self.started:
            raise SubstrateError("the runner's pod is gone")
        return None

    def _pods(self) -> str:
        deadline = time.monotonic() + _SILENCE_SECONDS
        while True:
            try:
                selector = f"--selector=job-name={_JOB}"
                return self._node.kubectl("get", "pods", _IN, selector, "--output=json")
            except KindError as error:
                if time.monotonic() > deadline:
                    raise SubstrateError(f"the kind cluster does not answer: {error}") from error
            time.sleep(_POLL_SECONDS)
