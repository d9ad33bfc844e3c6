"""The logs of a release's containers, among those of the run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path

from bigfleet.kube.client import CONNECTION_ERRORS, ApiError, KubeClient
from loaddriver.substrates.base import UnexpectedExit
from loaddriver.substrates.pods.containers import Container, Exit
from loaddriver.substrates.processes import last_lines


class PodLogs:
    """Writes logs into `folder`, each as COMPONENT.log, as far as they can be had.

    `host` gives the client of the cluster that the pods run in, `pods` is their path there.
    """

    def __init__(self, folder: Path, host: Callable[[], Awaitable[KubeClient]], pods: str) -> None:
        self._folder, self._host, self._pods = folder, host, pods
        self._explained: set[str] = set()

    def path(self, component: str) -> Path:
        """Where the component's log is, or is to be."""
        return self._folder / f"{component}.log"

    async def explain(self, exit: Exit, container: Container | None) -> UnexpectedExit:
        """The exit with the end of its log; `container` is the component's as it is now."""
        path = self.path(exit.component)
        if container is not None:
            log = await self._read(container, previous=container.ended is None)
            if log is not None:
                self._explained.add(exit.component)
                _write(path, log)
        return UnexpectedExit(exit.component, exit.returncode, path, last_lines(path))

    async def collect(self, containers: Iterable[Container]) -> None:
        """Write the logs of all; one that explains an exit stays, whatever was started since."""
        for container in containers:
            if container.component in self._explained:
                continue
            restarted = container.ended_before is not None
            before = await self._read(container, previous=True) if restarted else None
            now = await self._read(container, previous=False)
            if (before, now) != (None, None):
                _write(self.path(container.component), (before or b"") + (now or b""))

    async def _read(self, container: Container, *, previous: bool) -> bytes | None:
        """The log of this start, or of the `previous` one; None if it cannot be had."""
        query = {"container": container.name, **({"previous": "true"} if previous else {})}
        with suppress(ApiError, *CONNECTION_ERRORS):
            client = await self._host()
            return await client.get(f"{self._pods}/{container.pod}/log", query)
        return None


def _write(path: Path, text: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
