"""A Locust worker: plays its share of the plan, and sends what it did to its master.

Run by Locust, not imported.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gevent
import locust.runners
import msgspec
from locust import events
from locust.env import Environment
from locust.rpc.protocol import Message
from locust.runners import WorkerRunner

from loaddriver.errors import InfrastructureError
from loaddriver.load import messages
from loaddriver.load.dispatch import Dispatcher
from loaddriver.load.files import (
    CLUSTERS_VARIABLE,
    KUBECONFIGS_VARIABLE,
    WORKER_VARIABLE,
    ClusterEndpoint,
    Control,
    EventResult,
    WorkerReading,
    read_endpoints,
)
from loaddriver.load.kubeconfigs import endpoints_for, endpoints_in
from loaddriver.load.tenant import Tenant
from loaddriver.schedstat import wait_seconds

_SEND_SECONDS = 0.2
# Locust has no option for it.
locust.runners.MASTER_HEARTBEAT_TIMEOUT = messages.SILENCE_SECONDS
_LOG = logging.getLogger(__name__)
__all__ = ["Tenant"]


class Worker:
    """One worker of a master, under a name of its own."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._done: list[bytes] = []
        self._dispatcher: Dispatcher | None = None
        self._draining = False
        self._environment: Environment
        self._runner: WorkerRunner

    def start(self, environment: Environment, runner: WorkerRunner) -> None:
        """Ask for a share, and play it."""
        self._environment, self._runner = environment, runner
        listeners = {
            messages.SHARE: self._on_share,
            messages.REFUSAL: self._on_refusal,
            messages.ASK: self._on_ask,
            messages.CONTROL: self._on_control,
        }
        for kind, listener in listeners.items():
            runner.register_message(kind, listener)
        self._send(messages.JOIN, messages.Join(self._name, messages.code_digest()))
        gevent.spawn(self._send_results)

    def _send(self, kind: str, record: Any) -> None:
        self._runner.send_message(kind, messages.packed(record))

    def _on_share(self, msg: Message, **_: Any) -> None:
        try:
            share = messages.unpacked(msg, messages.Share)
            endpoints = endpoints_for(share.clusters, _own_endpoints(share))
            planned = messages.events_of(share)
        except (InfrastructureError, msgspec.MsgspecError, OSError) as error:
            self._send(messages.REFUSAL, messages.Refusal(self._name, str(error)))
            self._give_up(str(error))
            return
        self._dispatcher = Dispatcher(planned, time.time)
        Tenant.equip(endpoints, self._dispatcher, share.users, self._record)
        self._send(messages.LOADED, messages.Named(self._name))

    def _on_refusal(self, msg: Message, **_: Any) -> None:
        self._give_up(messages.unpacked(msg, messages.Refusal).reason)

    def _give_up(self, reason: str) -> None:
        """End this process with exit code 1."""
        _LOG.error("load worker %s plays nothing: %s", self._name, reason)
        self._environment.process_exit_code = 1
        gevent.spawn(self._runner.quit)

    def _on_ask(self, msg: Message, **_: Any) -> None:
        reading = WorkerReading(
            worker=self._name,
            sent=messages.unpacked(msg, messages.Ask).sent,
            at=time.time(),
            cpu_seconds=time.process_time(),
            wait_seconds=wait_seconds(os.getpid()),
        )
        self._send(messages.READING, reading)

    def _on_control(self, msg: Message, **_: Any) -> None:
        control = messages.unpacked(msg, Control)
        assert self._dispatcher is not None, "released before it was loaded"
        self._dispatcher.follow(control)
        if control.stop and not self._draining:
            self._draining = True
            gevent.spawn(self._drain, self._dispatcher)

    def _drain(self, dispatcher: Dispatcher) -> None:
        dispatcher.drain()
        self._flush()
        self._send(messages.DRAINED, messages.Named(self._name))

    def _record(self, result: EventResult) -> None:
        named = msgspec.structs.replace(result, worker=self._name)
        self._done.append(msgspec.json.encode(named) + b"\n")

    def _send_results(self) -> None:
        while True:
            gevent.sleep(_SEND_SECONDS)
            self._flush()

    def _flush(self) -> None:
        if self._done:
            lines, self._done = b"".join(self._done), []
            self._runner.send_message(messages.RESULTS, {"lines": lines})


def _own_endpoints(share: messages.Share) -> Mapping[str, ClusterEndpoint]:
    """The clusters as this process reaches them, by name. Raises InfrastructureError."""
    folder = os.environ.get(KUBECONFIGS_VARIABLE)
    if folder:
        return endpoints_in(Path(folder), [name for name, _ in share.clusters])
    return {each.name: each for each in read_endpoints(Path(os.environ[CLUSTERS_VARIABLE]))}


@events.init.add_listener  # type: ignore[untyped-decorator]
def _start(environment: Environment, runner: WorkerRunner, **_: Any) -> None:
    Worker(os.environ[WORKER_VARIABLE]).start(environment, runner)
