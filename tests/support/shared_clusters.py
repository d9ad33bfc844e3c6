"""Control planes that many tests use one after the other."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from controlplane.request import Binaries
from loaddriver.substrates.base import Cluster
from loaddriver.substrates.local import LocalSubstrate
from loaddriver.substrates.runscope import RunScope
from tests.support.loop_thread import LoopThread
from tests.support.substrates import FEW_OBJECTS

Clusters = dict[str, Cluster]
Prepare = Callable[[Clusters], Coroutine[Any, Any, None]]


async def _as_they_are(_: Clusters) -> None:
    """They need no preparation."""


class SharedClusters:
    """Starts each set of clusters for the first test that uses it. `stop` ends all of them, since
    an idle control plane takes CPU too; whoever uses them afterwards gets new ones.

    `name` and `logs` return the run id and the directory of each start; `environment` is that of
    the processes.
    """

    def __init__(
        self,
        name: Callable[[], str],
        binaries: Binaries,
        logs: Callable[[], Path],
        environment: dict[str, str],
    ) -> None:
        self._name, self._binaries = name, binaries
        self._logs, self._environment = logs, environment
        self._running: _Running | None = None

    def of(self, *names: str, prepare: Prepare = _as_they_are) -> Clusters:
        """The clusters of these names; `prepare` is called with new ones."""
        if self._running is None:
            self._running = _Running(self._name(), self._binaries, self._logs(), self._environment)
        return self._running.of(names, prepare)

    def stop(self) -> None:
        """End what runs."""
        running, self._running = self._running, None
        if running is not None:
            running.stop()


class _Running:
    def __init__(
        self, name: str, binaries: Binaries, logs: Path, environment: dict[str, str]
    ) -> None:
        self._scope = RunScope.open(name, "tests", logs, logs / "lock")
        self._loop = LoopThread()
        self._started: dict[Sequence[str], Clusters] = {}
        scope = self._scope

        async def substrate() -> LocalSubstrate:
            return LocalSubstrate(
                scope.run_id, scope.data_directory, logs, binaries, environment, FEW_OBJECTS
            )

        self._substrate = self._loop.run(substrate())

    def of(self, names: Sequence[str], prepare: Prepare) -> Clusters:
        if names not in self._started:
            clusters = self._loop.run(self._substrate.start_clusters(names))
            made = {cluster.name: cluster for cluster in clusters}
            self._loop.run(prepare(made))
            self._started[names] = made
        return self._started[names]

    def stop(self) -> None:
        self._loop.run(self._substrate.stop())
        self._loop.run(self._scope.close())
        self._loop.close()
