"""The Locust master: divides the plan among its workers, and gathers what they did.

Run by Locust, not imported. It sends no requests itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gevent
import locust.runners
import msgspec
from locust import events
from locust.env import Environment
from locust.rpc.protocol import Message
from locust.runners import STATE_MISSING, MasterRunner

from loaddriver.load import messages
from loaddriver.load.dispatch import DRAIN_TIMEOUT_SECONDS, users_for
from loaddriver.load.files import (
    CLUSTERS_VARIABLE,
    CONTROL_VARIABLE,
    PLAN_VARIABLE,
    RESULTS_VARIABLE,
    WORKERS_VARIABLE,
    ClusterEndpoint,
    Control,
    Recorder,
    WorkerJoined,
    WorkerLost,
    WorkerReading,
    read_control,
    read_endpoints,
)
from loaddriver.load.shape import ConstantUsers
from loaddriver.load.tenant import Tenant
from loaddriver.plan.division import divide
from loaddriver.plan.files import load_plan
from loaddriver.plan.records import LoadEvent

_POLL_SECONDS = 0.1
# The first readings tell how far the clocks are apart before anything is sent; later ones also
# what CPU a worker uses.
_FIRST_READINGS = 5
_READING_SECONDS = 10.0
_LAST_RESULTS_SECONDS = DRAIN_TIMEOUT_SECONDS + 5.0
# Locust has no options for these.
locust.runners.HEARTBEAT_LIVENESS = messages.SILENCE_SECONDS


class SteadyUsers:
    """In place of Locust's dispatcher, which moves users whenever a worker joins or leaves: it
    would stop some in the midst of their requests, and give a worker without a share some.
    """

    dispatch_in_progress = False

    def __init__(
        self,
        worker_nodes: Sequence[Any],  # noqa: ARG002  all that Locust knows, also refused ones
        user_classes: Sequence[type],
        clients: Callable[[], Sequence[str]],
    ) -> None:
        self._names, self._clients = [each.__name__ for each in user_classes], clients
        self._each = 0

    def new_dispatch(
        self,
        target_user_count: int,
        spawn_rate: float,  # noqa: ARG002
        user_classes: Any = None,  # noqa: ARG002
    ) -> None:
        """Divide `target_user_count` users evenly, all at once."""
        self._each = target_user_count // len(self._clients())

    def __iter__(self) -> Iterator[dict[str, dict[str, int]]]:
        """What Locust sends: the users of each class, by worker."""
        yield {client: dict.fromkeys(self._names, self._each) for client in self._clients()}

    def add_worker(self, worker_node: Any) -> None:
        """Nothing changes."""

    def remove_worker(self, worker_node: Any) -> None:
        """Nothing changes."""


class Master:
    """The workers of a run, each under the name that it gave itself.

    A share is given once, to one worker: if that is lost, nobody else plays it.
    """

    def __init__(self, number: int, control: Path, recorder: Recorder) -> None:
        self._number, self._control_path, self._recorder = number, control, recorder
        self._events = load_plan(Path(os.environ[PLAN_VARIABLE])).events
        self._endpoints: list[ClusterEndpoint] = read_endpoints(Path(os.environ[CLUSTERS_VARIABLE]))
        self._shares: dict[str, list[LoadEvent]] = {}
        self._clients: dict[str, str] = {}
        self._readings: dict[str, int] = {}
        self._drained: set[str] = set()
        self._lost: set[str] = set()
        self._control = Control()
        self._asked_at = 0.0
        self._runner: MasterRunner
        self.users = 0

    @property
    def clients(self) -> list[str]:
        """The ids that Locust gave to the workers with a share."""
        return list(self._clients.values())

    @property
    def ready(self) -> bool:
        """Whether all workers have their shares, and their clocks are known."""
        counts = self._readings.values()
        return len(counts) == self._number and min(counts) >= _FIRST_READINGS

    @property
    def stopping(self) -> bool:
        """Whether the runner has asked for an end."""
        return self._control.stop

    def start(self, environment: Environment, runner: MasterRunner) -> None:
        """Follow workers and the control file from now on."""
        self._runner = runner
        environment.dispatcher_class = partial(  # type: ignore[assignment]  # called like the class
            SteadyUsers, clients=lambda: self.clients
        )
        listeners = {
            messages.JOIN: self._on_join,
            messages.REFUSAL: self._on_refusal,
            messages.LOADED: self._on_loaded,
            messages.READING: self._on_reading,
            messages.RESULTS: self._on_results,
            messages.DRAINED: self._on_drained,
        }
        for kind, listener in listeners.items():
            runner.register_message(kind, listener)
        gevent.spawn(self._follow)

    def ended(self, seconds: float) -> bool:
        """Whether all have sent their last results; after too many `seconds` the rest is lost."""
        missing = self._clients.keys() - self._drained - self._lost
        if missing and seconds > _LAST_RESULTS_SECONDS:
            for name in sorted(missing):
                self._lose(name, "did not send its last results")
            return True
        return not missing

    def _follow(self) -> None:
        while True:
            self._pass_on(read_control(self._control_path))
            if not self.stopping:
                self._note_missing()
            often = self._shares and not self.ready
            if time.monotonic() - self._asked_at >= (_POLL_SECONDS if often else _READING_SECONDS):
                self._asked_at = time.monotonic()
                for name in list(self._readings):
                    self._send(messages.ASK, messages.Ask(time.time()), self._clients[name])
            gevent.sleep(_POLL_SECONDS)

    def _pass_on(self, control: Control) -> None:
        """Send changes of the control file to all workers, and record what was released."""
        if control == self._control:
            return
        for release in control.releases[len(self._control.releases) :]:
            self._recorder.record(release)
        self._control = control
        for client in self.clients:
            self._send(messages.CONTROL, control, client)

    def _note_missing(self) -> None:
        for name, client in self._clients.items():
            node = self._runner.clients.get(client)
            if node is None:
                self._lose(name, "ended before the run did")
            elif node.state == STATE_MISSING:
                self._lose(name, f"has not answered for {messages.SILENCE_SECONDS} s")

    def _lose(self, name: str, reason: str) -> None:
        if name not in self._lost:
            self._lost.add(name)
            self._recorder.record(WorkerLost(worker=name, reason=reason))

    def _send(self, kind: str, record: Any, client: str) -> None:
        self._runner.send_message(kind, messages.packed(record), client)

    def _on_join(self, msg: Message, **_: Any) -> None:
        joined, client = messages.unpacked(msg, messages.Join), str(msg.node_id)
        if joined.code != messages.code_digest():
            reason = "its revision of loaddriver is not the runner's"
        elif joined.name in self._clients:
            reason = "another worker has this name, whose events are never played again"
        elif len(self._clients) == self._number:
            reason = f"all {self._number} shares of the plan are taken"
        else:
            self._clients[joined.name] = client
            if len(self._clients) == self._number:
                self._divide()
            return
        self._send(messages.REFUSAL, messages.Refusal(joined.name, reason), client)

    def _divide(self) -> None:
        """Give each worker its share, in the order of their names."""
        shares = divide(self._events, self._number)
        self.users = max(map(users_for, shares))
        self._shares = dict(zip(sorted(self._clients), shares, strict=True))
        for name, share in self._shares.items():
            record = messages.share_of(share, self._endpoints, self.users)
            self._send(messages.SHARE, record, self._clients[name])

    def _on_loaded(self, msg: Message, **_: Any) -> None:
        name = messages.unpacked(msg, messages.Named).name
        self._readings[name] = 0
        self._recorder.record(WorkerJoined(worker=name, events=len(self._shares[name])))

    def _on_refusal(self, msg: Message, **_: Any) -> None:
        refusal = messages.unpacked(msg, messages.Refusal)
        self._lose(refusal.name, f"refused its share: {refusal.reason}")

    def _on_reading(self, msg: Message, **_: Any) -> None:
        received = time.time()
        reading = messages.unpacked(msg, WorkerReading)
        self._readings[reading.worker] += 1
        self._recorder.record(msgspec.structs.replace(reading, received=received))

    def _on_results(self, msg: Message, **_: Any) -> None:
        self._recorder.append(msg.data["lines"])

    def _on_drained(self, msg: Message, **_: Any) -> None:
        self._drained.add(messages.unpacked(msg, messages.Named).name)


_RECORDER = Recorder(Path(os.environ[RESULTS_VARIABLE]))
_MASTER = Master(int(os.environ[WORKERS_VARIABLE]), Path(os.environ[CONTROL_VARIABLE]), _RECORDER)
__all__ = ["StepReleases", "Tenant"]


@events.init.add_listener  # type: ignore[untyped-decorator]
def _start(environment: Environment, runner: MasterRunner, **_: Any) -> None:
    _MASTER.start(environment, runner)


class StepReleases(ConstantUsers):
    """Has each worker start its users; their number is constant."""

    def tick(self) -> tuple[int, float] | None:
        """Called by Locust every second; returning None ends all processes with exit code 0."""
        while not _MASTER.ready and not _MASTER.stopping:
            gevent.sleep(_POLL_SECONDS)
        users = _MASTER.users * len(_MASTER.clients)
        self.note_start(users, _RECORDER)
        ended = _MASTER.stopping and _MASTER.ended(self.seconds_stopping())
        return None if ended else (users, users)
