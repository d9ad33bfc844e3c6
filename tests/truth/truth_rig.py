"""Runs of the truth profile, and what can be read from them."""

from __future__ import annotations

import asyncio
import random
import re
import statistics
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

from bigfleet.kube.client import KubeClient
from loaddriver.judge.schema import Summary
from loaddriver.plan.manifests import ARCHETYPE_LABEL, STEP_LABEL, WORKLOAD_LABEL
from loaddriver.record.recorder import ClusterRecorder, Observations
from loaddriver.record.rows import PodRow
from loaddriver.report.results import PODS, read_summary
from loaddriver.report.table import read_rows
from loaddriver.substrates.runlock import current_holder, machine_lock_path
from tests.support.scaletest import ROOT, Scaletest

PROFILES = ROOT / "tests" / "truth" / "profiles"
CLUSTER = "c1"
_RUN_SECONDS = 400.0
_TURN_SECONDS = 900.0
_LOOK_SECONDS = 0.1
BINDING_DELAY_SECONDS = 3.0
CREATE_DELAY_SECONDS, CONFIGURE_DELAY_SECONDS = 6.0, 9.0
# What is delayed in one run, in seconds by hop; the values differ, so that none passes for another.
LATE_CREATION_AND_ROLL_UP = {"arrived": 4.0, "rolledUp": 6.0}
LATE_REQUEST_AND_DECISION = {"seen": 4.0, "decided": 6.0}
# What the profile has without them.
_CREATE_SECONDS, _CONFIGURE_SECONDS = 1.5, 1.0
# Two of a hundred, so that they decide what the p99 is.
HOPELESS, HOPELESS_WORKLOAD = 12, "hopeless"
# About half of them, by the last character of a pod's name: these share everything else of their
# run with the others.
LATE_BINDINGS = "/pods/[^/]*[bcdfghjkl2468]/binding$"
# Before a ReplicaSet is created there are no pods of it.
REPLICA_SETS = "/replicasets$"
_PODS = "/api/v1/namespaces/tenant-probe/pods"


class Truth(Scaletest):
    """One `loaddriver run` of a profile, as soon as nobody else measures on this machine.

    With `python` the harness and BigFleet's roles run in that interpreter.
    """

    profiles = PROFILES

    def __init__(
        self, results: Path, *arguments: str, profile: str = "truth", python: Path | None = None
    ) -> None:
        self.code = -1
        if python is not None:
            self.python = str(python)
        deadline = time.monotonic() + _TURN_SECONDS
        for attempt in count():
            _await_turn(deadline)
            own = results / str(attempt)
            super().__init__(own, profile, "--profiles", str(self.profiles), *arguments)
            if self._began():
                return

    def _began(self) -> bool:
        """Whether it started its clusters; False when another run was a moment earlier."""
        while not any(line.startswith("starting") for line in list(self.lines)):
            if self.child.poll() is not None:
                self.exit_code()
                assert "another measuring run" in self.output, self.output
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    def await_line(self, text: str, seconds: float = _RUN_SECONDS) -> None:
        """Return once a line of the output holds `text`; not later than the run's end."""
        deadline = time.monotonic() + seconds
        while not any(text in line for line in list(self.lines)):
            if self.child.poll() is not None or time.monotonic() > deadline:
                self.end()
                raise AssertionError(f"{text!r} was not said:\n{self.output}")
            time.sleep(_LOOK_SECONDS)

    def finished(self) -> Truth:
        """Wait for the end; a run that broke off proves nothing."""
        self.code = self.exit_code(_RUN_SECONDS)
        assert self.whole.verdict != "error", self.output
        assert not self.left_overs()
        return self

    @property
    def whole(self) -> Summary:
        """The summary as the judge made it."""
        return read_summary(self.folder)

    @property
    def rows(self) -> list[PodRow]:
        """Every pod of the run."""
        return read_rows(self.folder / PODS)

    def access(self, identity: str) -> Path:
        """A kubeconfig of the running cluster."""
        (path,) = (
            found
            for root in (Path("/dev/shm"), Path("/tmp"))
            for data in root.glob(f"bigfleet-*{self.folder.name}*")
            for found in data.rglob(f"{CLUSTER}/credentials/{identity}.kubeconfig")
        )
        return path


class WatchedTruth:
    """A run, and a second recorder beside it, which every hundredth watch event never reaches."""

    def __init__(self, results: Path) -> None:
        self.run = Truth(results)
        self.dropped = 0
        self.run.await_line("  ramp")
        try:
            self.observed = asyncio.run(self._watch_too())
        finally:
            self.run.finished()

    async def _watch_too(self) -> Observations:
        client = await LossyClient.from_kubeconfig(self.run.access("recorder"))
        async with client:
            log = self.run.folder / "logs" / CLUSTER / "audit.log"
            recorder = ClusterRecorder(CLUSTER, client, log)
            running = asyncio.create_task(recorder.run())
            await asyncio.to_thread(self.run.await_line, "stopping", _RUN_SECONDS)
            running.cancel()
            await asyncio.wait([running])
        assert isinstance(client, LossyClient)
        self.dropped = client.dropped
        return recorder.finish()


class LossyClient(KubeClient):
    """Of what a watch sends, every hundredth line on average gets lost on the way."""

    SHARE = 0.01
    dropped = 0
    _random = random.Random(1)

    async def open(
        self, path: str, query: Mapping[str, str], deadline_seconds: float
    ) -> aiohttp.ClientResponse:
        response = await super().open(path, query, deadline_seconds)
        response.content = _Leak(response.content, self._passes)  # type: ignore[assignment]
        return response

    def _passes(self, _: bytes) -> bool:
        lost = self._random.random() < self.SHARE
        self.dropped += lost
        return not lost


class _Leak:
    def __init__(self, source: aiohttp.StreamReader, passes: Callable[[bytes], bool]) -> None:
        self._source, self._passes = source, passes
        self.exception = source.exception

    async def iter_any(self) -> AsyncIterator[bytes]:
        rest = b""
        async for chunk in self._source.iter_any():
            *whole, rest = (rest + chunk).split(b"\n")
            yield b"".join(line + b"\n" for line in whole if self._passes(line))


def _await_turn(deadline: float) -> None:
    """Whoever measures on this machine has it for himself."""
    while (holder := current_holder(machine_lock_path())) is not None:
        assert time.monotonic() < deadline, f"{holder} has this machine"
        time.sleep(_LOOK_SECONDS)


def node_was_ready(rows: Sequence[PodRow]) -> list[PodRow]:
    """Bound pods whose node was there before them."""
    return [row for row in rows if row.bound_micros is not None and row.node_was_ready]


def waited_for_node(rows: Sequence[PodRow]) -> list[PodRow]:
    """Bound pods whose node was not there yet when they came."""
    return [row for row in rows if row.bound_micros is not None and row.node_was_ready is False]


def waited_throughout(rows: Sequence[PodRow]) -> list[PodRow]:
    """Those of them that came before their machine was even chosen, and saw all of its story."""
    return [row for row in waited_for_node(rows) if (row.decided_micros or 0) > row.created_micros]


def with_own_machine(rows: Sequence[PodRow]) -> list[PodRow]:
    """Those whose machine was chosen once their own need had reached the shard."""
    return [
        row
        for row in waited_throughout(rows)
        if (row.decided_micros or 0) >= (row.rolled_up_micros or 0) > 0
    ]


def median_hop(rows: Sequence[PodRow], hop: str) -> float:
    """The median of one part of the waits, in seconds; a pod without it spent no time in it."""
    return statistics.median(row.hops_micros().get(hop, 0) / 1e6 for row in rows)


def is_held_up(pod: str) -> bool:
    """Whether the binding of a pod of this name is late."""
    return re.search(LATE_BINDINGS, f"/pods/{pod}/binding") is not None


def twins(
    rows: Sequence[PodRow], is_other: Callable[[str], bool]
) -> list[tuple[list[PodRow], list[PodRow]]]:
    """Pods of one object on one machine, of names that are not `is_other` and that are: all else
    that befalls them is the same.
    """
    alike: dict[tuple[str, str], tuple[list[PodRow], list[PodRow]]] = {}
    for row in rows:
        alike.setdefault((row.workload, row.node), ([], []))[is_other(row.name)].append(row)
    return [(ours, others) for ours, others in alike.values() if ours and others]


def slower_machines() -> list[str]:
    """The arguments that add the provider's delays to the profile's own."""
    latencies = {
        "create": _CREATE_SECONDS + CREATE_DELAY_SECONDS,
        "configure": _CONFIGURE_SECONDS + CONFIGURE_DELAY_SECONDS,
    }
    pairs = [f"fleet.latency.{name}Seconds={value:g}" for name, value in latencies.items()]
    return [part for pair in pairs for part in ("--set", pair)]


def add_unbindable_pods(run: Truth) -> None:
    """Pods of the load that ask for a node with a label that none has."""

    async def add() -> None:
        async with await KubeClient.from_kubeconfig(run.access("admin")) as admin:
            for number in range(HOPELESS):
                await admin.create(_PODS, _unbindable_pod(number))

    asyncio.run(add())


def _unbindable_pod(number: int) -> dict[str, Any]:
    labels = {
        WORKLOAD_LABEL: HOPELESS_WORKLOAD,
        ARCHETYPE_LABEL: "probe",
        STEP_LABEL: HOPELESS_WORKLOAD,
    }
    spec = {
        "nodeSelector": {"truth/there-is-none": "yes"},
        "containers": [{"name": "app", "image": "fake"}],
    }
    return {"metadata": {"name": f"hopeless-{number}", "labels": labels}, "spec": spec}
