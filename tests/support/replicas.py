"""Coordinator replicas as real processes, each with a real etcd; and faults for them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from tests.support.ports import free_address
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
# Only a failing test waits this long: machines that run tests may be slow.
_ORDERLY_SECONDS = 60.0


class ReplicaProcess:
    """One coordinator that can be killed, stopped and restarted."""

    def __init__(self, command: Sequence[str], address: str, observe: str, log: Path) -> None:
        self._command, self.address, self._observe, self.log = command, address, observe, log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it unless it is running."""
        if self._process is None or self._process.poll() is not None:
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    self._command,
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # as a service manager does
                )

    def start_again(self) -> None:
        """Start it if it was killed, also just now."""
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.2)
        self.start()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        assert self._process is not None
        return self._process.poll()

    def etcd(self) -> psutil.Process:
        """Its etcd member's process."""
        children = psutil.Process(self.pid).children(recursive=True)
        return next(child for child in children if child.name() == "etcd")

    def ready(self) -> bool:
        """Whether it knows a leader."""
        try:
            with urllib.request.urlopen(f"http://{self._observe}/readyz", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def metric(self, name: str) -> float:
        """The sum of a metric's series."""
        with urllib.request.urlopen(f"http://{self._observe}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        found = [line.rpartition(" ")[2] for line in lines if line.startswith(name)]
        return sum(float(value) for value in found)

    def send(self, number: signal.Signals) -> None:
        """Signal the coordinator itself."""
        os.kill(self.pid, number)

    def end(self) -> None:
        """Terminate it with SIGTERM and wait."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(_ORDERLY_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def log_tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-3000:]


class Replicas:
    """All replicas of one coordinator, by id."""

    def __init__(
        self,
        etcd: Path,
        directory: Path,
        names: Sequence[str] = ("a", "b", "c"),
        identities: Mapping[str, Path] | None = None,
        peers: Mapping[str, str] | None = None,
    ) -> None:
        self._etcd, self._directory, self._identities = etcd, directory, identities or {}
        self._peers = {name: free_address() for name in names} | dict(peers or {})
        self.by_id: dict[str, ReplicaProcess] = {}
        for name in names:
            self.add(name)

    def add(self, name: str, *more: str) -> ReplicaProcess:
        """One more replica, not started yet; `more` are further flags."""
        self._peers.setdefault(name, free_address())
        listen, observe = free_address(), free_address()
        peers = ",".join(f"{each}={address}" for each, address in self._peers.items())
        state = self._directory / name
        state.mkdir(parents=True, exist_ok=True)
        identity = self._identities.get(name)
        secured = ("--identity", str(identity)) if identity else ("--insecure",)
        command = [
            *(sys.executable, "-m", "bigfleet", "coordinator", *secured, "--node-id", name),
            *("--listen", listen, "--observe", observe, "--state", str(state)),
            *("--etcd", str(self._etcd), "--peers", peers, *more),
        ]
        replica = ReplicaProcess(command, listen, observe, self._directory / f"{name}.log")
        self.by_id[name] = replica
        return replica

    def peer_address(self, name: str) -> str:
        """Where its etcd answers the others."""
        return self._peers[name]

    def addresses(self) -> list[str]:
        return [replica.address for replica in self.by_id.values()]

    def at(self, address: str) -> ReplicaProcess:
        """The replica at that address."""
        return next(r for r in self.by_id.values() if r.address == address)

    def start(self) -> None:
        """Start those that are down, and wait until all know a leader."""
        for replica in self.by_id.values():
            replica.start()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        def all_ready() -> bool:
            for name, replica in self.by_id.items():
                assert replica.exit_status is None, f"{name} ended:\n{replica.log_tail()}"
            return all(replica.ready() for replica in self.by_id.values())

        wait_until(all_ready, "all replicas know a leader")

    def log_lines(self, *log_tail: str) -> str:
        """The lines of all logs, etcd's included, that have any of these words; in their order."""
        logs = [*self._directory.glob("*.log"), *self._directory.glob("*/etcd.log*")]
        lines = [
            f"{log.relative_to(self._directory)}: {line}"
            for log in logs
            for line in log.read_text(errors="replace").splitlines()
            if any(word in line for word in log_tail)
        ]
        return "\n".join(lines)

    def end(self) -> None:
        for replica in self.by_id.values():
            with contextlib.suppress(AssertionError, psutil.Error, StopIteration):
                replica.etcd().send_signal(signal.SIGCONT)
            replica.end()


@contextlib.contextmanager
def running(
    etcd: Path,
    directory: Path,
    names: Sequence[str] = ("a", "b", "c"),
    identities: Mapping[str, Path] | None = None,
) -> Iterator[Replicas]:
    """Replicas that run and know a leader; ended at the end."""
    replicas = Replicas(etcd, directory, names, identities)
    try:
        replicas.start()
        yield replicas
    finally:
        replicas.end()
