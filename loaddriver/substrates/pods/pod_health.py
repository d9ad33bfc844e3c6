"""Notices containers of a release that end during a run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path

from bigfleet.kube.client import CONNECTION_ERRORS, ApiError
from loaddriver.substrates.pods.containers import Container, Exit, exits
from loaddriver.substrates.pods.pod_states import PodContainer

_POLL_SECONDS = 1.0


class PodHealth:
    """Follows the pods from `start` to `stop`. Create it inside a running event loop.

    `survives` are components that keep their state outside their pods: Kubernetes restarts them,
    and the run goes on. Each restart is a line of `log`.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[Mapping[str, PodContainer]]],
        survives: Collection[str],
        log: Path,
    ) -> None:
        self._read, self._survives, self._log = read, survives, log
        self._living: dict[str, str] = {}
        self._expected: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._first: asyncio.Future[tuple[Exit, Container | None]] = (
            asyncio.get_running_loop().create_future()
        )

    async def start(self) -> None:
        """Follow what runs now."""
        for found in (await self._read()).values():
            self.track(found.container)
        self._task = asyncio.create_task(self._follow(), name="health of the pods")

    def track(self, container: Container) -> None:
        """Follow this start of a component from now on."""
        if container.identity:
            self._expected.discard(container.component)
            self._living[container.component] = container.identity

    def expect(self, component: str) -> None:
        """Declare the next exit of a component."""
        self._expected.add(component)

    async def first_exit(self) -> tuple[Exit, Container | None]:
        """Wait for the first undeclared exit that a run does not survive."""
        return await asyncio.shield(self._first)

    async def stop(self) -> None:
        """Follow no longer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self) -> None:
        while not self._first.done():
            await asyncio.sleep(_POLL_SECONDS)
            try:
                seen = await self._read()
            except (ApiError, *CONNECTION_ERRORS):
                continue  # the host cluster's own trouble; the parts may well be fine
            containers = {name: found.container for name, found in seen.items()}
            for exit in list(exits(self._living, containers)):
                self._note(exit, containers.get(exit.component))

    def _note(self, exit: Exit, now: Container | None) -> None:
        survives = exit.component in self._survives or exit.component in self._expected
        if not survives:
            if not self._first.done():
                self._first.set_result((exit, now))
        elif now is not None and now.identity not in ("", self._living[exit.component]):
            with self._log.open("a") as log:
                moment = datetime.now(UTC).isoformat(timespec="seconds")
                log.write(f"{moment} {exit.component} was restarted\n")
            self.track(now)
