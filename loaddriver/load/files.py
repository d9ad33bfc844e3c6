"""The files shared by the runner and the load process.

The runner writes the clusters file and the control file, the load process appends results. Times
are Unix seconds, so that the processes could run on different machines.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import yaml

from loaddriver.errors import InfrastructureError

LOCUST, LOCUST_WORKERS = "locust", "locust-worker-"
"""The processes that play the load; the CPU of those that begin so is the harness's."""
_KUBECONFIG_LISTS = ("contexts", "clusters", "users")
# How the detail of a failure begins that is the load process's own.
LOAD_BUG = "a bug in the load process"
_TIMED_OUT, _TOO_MANY_REQUESTS, _SERVER_ERRORS = 408, 429, 500
# Environment variables with the paths of these files.
PLAN_VARIABLE = "LOADDRIVER_PLAN"
CLUSTERS_VARIABLE = "LOADDRIVER_CLUSTERS"
CONTROL_VARIABLE = "LOADDRIVER_CONTROL"
RESULTS_VARIABLE = "LOADDRIVER_RESULTS"
# How many workers a Locust master waits for, the name of a worker, and its folder of kubeconfigs
# if it is on another host.
WORKERS_VARIABLE = "LOADDRIVER_WORKERS"
WORKER_VARIABLE = "LOADDRIVER_WORKER"
KUBECONFIGS_VARIABLE = "LOADDRIVER_KUBECONFIGS"


class ClusterEndpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The endpoint of one cluster; its position in the list is its number in the plan.

    Without an authority, as a file or in PEM, the server's certificate is not verified.
    """

    name: str
    url: str
    token: str
    ca_file: str | None = None
    ca_pem: str | None = None

    @property
    def verified(self) -> bool:
        """Whether the server's certificate is verified."""
        return self.ca_file is not None or self.ca_pem is not None


class StepReleased(msgspec.Struct, frozen=True, kw_only=True, tag="released", rename="camel"):
    """The release of a step; its offsets count from `at` and are multiplied by `stretch`.

    With the plan it has the due time of every event of the step, also of those never sent.
    """

    step: int
    at: float
    stretch: float = 1.0

    def due(self, offset_seconds: float) -> float:
        """When what the plan has at `offset_seconds` of the step is due, in Unix seconds."""
        return self.at + offset_seconds * self.stretch

    def due_micros(self, offset_seconds: float) -> int:
        """The same in microseconds."""
        return round(self.due(offset_seconds) * 1e6)


class Control(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The released steps, in order of release."""

    releases: tuple[StepReleased, ...] = ()
    stop: bool = False

    def released(self, release: StepReleased) -> Control:
        """Return a copy with one more step released."""
        return Control(releases=(*self.releases, release), stop=self.stop)

    def stopped(self) -> Control:
        """Return a copy that stops the load process."""
        return msgspec.structs.replace(self, stop=True)


class LoadStarted(msgspec.Struct, frozen=True, kw_only=True, tag="started", rename="camel"):
    """The load process is ready to send."""

    at: float


class EventResult(msgspec.Struct, frozen=True, kw_only=True, tag="result", rename="camel"):
    """The result of one event of the plan.

    `verb` is create, scale, delete or churn. `due`, `sent` (the first attempt) and `done` are Unix
    seconds. `status` is the last HTTP status, 0 without a response. `name` is that of the object;
    empty if a churn found no pod. `worker` played it, "" if there is one process only.
    """

    id: str
    cluster: int
    step: int
    verb: str
    name: str
    due: float
    sent: float
    done: float
    lateness_seconds: float
    status: int
    attempts: int
    ok: bool
    detail: str
    worker: str = ""

    @property
    def unserved(self) -> bool:
        """Whether it failed because the server was busy, in error or silent."""
        busy = self.status in (0, _TIMED_OUT, _TOO_MANY_REQUESTS) or self.status >= _SERVER_ERRORS
        return not self.ok and busy and not self.detail.startswith(LOAD_BUG)

    @property
    def without_target(self) -> bool:
        """Whether it is a churn that found no pod to delete, which is harmless."""
        return self.verb == "churn" and self.ok and not (self.name and 200 <= self.status < 300)


class WorkerJoined(msgspec.Struct, frozen=True, kw_only=True, tag="joined", rename="camel"):
    """A worker has its share of the plan: so many events."""

    worker: str
    events: int


class WorkerLost(msgspec.Struct, frozen=True, kw_only=True, tag="lost", rename="camel"):
    """A worker will not play its share; `reason` continues its name in a sentence."""

    worker: str
    reason: str


class WorkerReading(msgspec.Struct, frozen=True, kw_only=True, tag="reading", rename="camel"):
    """A worker's answer to its master, at `at` of its own clock in Unix seconds.

    The master asked at `sent` and had the answer at `received` of its clock. `cpu_seconds` is the
    CPU time of the worker so far; `wait_seconds` is how long it was ready to run without a core.
    """

    worker: str
    sent: float
    at: float
    received: float = 0.0
    cpu_seconds: float
    wait_seconds: float

    @property
    def offset_bounds(self) -> tuple[float, float]:
        """The least and the largest possible offset of its clock to the master's, in seconds."""
        return self.at - self.received, self.at - self.sent


ResultLine = LoadStarted | StepReleased | EventResult | WorkerJoined | WorkerLost | WorkerReading


def cluster_endpoint(name: str, kubeconfig: Path) -> ClusterEndpoint:
    """Read the endpoint of a kubeconfig's current context.

    Raises InfrastructureError if it has no token.
    """
    raw = yaml.safe_load(kubeconfig.read_text())
    contexts, clusters, users = (
        {each["name"]: each for each in raw[key]} for key in _KUBECONFIG_LISTS
    )
    context = contexts[raw["current-context"]]["context"]
    cluster = clusters[context["cluster"]]["cluster"]
    user = users[context["user"]]["user"]
    if "token" not in user:
        raise InfrastructureError(
            f"{kubeconfig}: the user of its current context has no token; the load "
            "authenticates with bearer tokens"
        )
    encoded = cluster.get("certificate-authority-data")
    return ClusterEndpoint(
        name=name,
        url=cluster["server"],
        token=user["token"],
        ca_file=cluster.get("certificate-authority"),
        ca_pem=None if encoded is None else base64.b64decode(encoded).decode(),
    )


def write_endpoints(endpoints: Sequence[ClusterEndpoint], path: Path) -> None:
    """Write the clusters file, readable only by its owner, as it contains tokens."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(endpoints))


def read_endpoints(path: Path) -> list[ClusterEndpoint]:
    """Read the clusters file."""
    return msgspec.json.decode(path.read_bytes(), type=list[ClusterEndpoint])


def write_control(control: Control, path: Path) -> None:
    """Replace the control file atomically."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_bytes(msgspec.json.encode(control))
    fresh.replace(path)


def read_control(path: Path) -> Control:
    """Read the control file."""
    return msgspec.json.decode(path.read_bytes(), type=Control)


class Recorder:
    """Appends lines to a results file."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def record(self, line: ResultLine) -> None:
        """Append one line."""
        self.append(msgspec.json.encode(line) + b"\n")

    def append(self, lines: bytes) -> None:
        """Append encoded lines, each with its end."""
        os.write(self._file, lines)


class ResultReader:
    """Reads a growing results file, each complete line once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._decoder: msgspec.json.Decoder[ResultLine] = msgspec.json.Decoder(ResultLine)

    def new_lines(self) -> list[ResultLine]:
        """The lines completed since the last call; none if the file does not exist yet."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        complete = text[: text.rfind(b"\n") + 1]
        self._offset += len(complete)
        return [self._decoder.decode(line) for line in complete.splitlines()]
