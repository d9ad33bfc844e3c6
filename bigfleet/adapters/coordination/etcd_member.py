"""One member of the etcd cluster as a child process, on sockets that only its coordinator reaches.

Clients come by Unix sockets in the state directory, whose rights keep others out; the network sees
the peer port alone, which is on loopback or guarded by certificates.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from bigfleet.adapters.coordination import etcd_log
from bigfleet.api.auth.identity import AUTHORITY, CERTIFICATE, KEY, Identity
from bigfleet.api.transport import SERVER_NAME
from bigfleet.model.errors import InvalidInput, Unavailable

_WATCHDOG = Path(__file__).with_name("watchdog.py")
# Linux takes 107 bytes for the path of a socket.
_MAX_SOCKET_PATH_BYTES = 107
_STOP_TIMEOUT_SECONDS = 5.0
# One report may change some two thousand rows, in one transaction.
_MAX_TXN_OPS = 4096
_MAX_REQUEST_BYTES = 8 * 2**20
# What it hears from its former peers, before it ends.
_REMOVED = "the member has been permanently removed from the cluster"


@dataclass(frozen=True)
class EtcdTiming:
    """Milliseconds. A follower calls an election after one to two `election` without a heartbeat.

    `stall`: how long a coordinator may be silent before leadership is moved away from it.
    """

    heartbeat: int = 60
    election: int = 300
    stall: int = 500


@dataclass(frozen=True)
class EtcdMemberConfig:
    """`peers` are HOST:PORT by name, `name`'s own among them; empty for a member that stays alone.
    `joining`: the cluster is there already.

    InvalidInput for what etcd could not work with, or what would let strangers in.
    """

    name: str
    binary: Path
    directory: Path
    peers: Mapping[str, str]
    joining: bool = False
    identity: Identity | None = None
    timing: EtcdTiming = field(default_factory=EtcdTiming)

    def __post_init__(self) -> None:
        if self.peers and self.name not in self.peers:
            known = ", ".join(self.peers)
            raise InvalidInput("--peers", known, f"does not name this replica, {self.name}")
        if not os.access(self.binary, os.X_OK):
            raise InvalidInput("--etcd", str(self.binary), "is not an executable file")
        surplus = len(os.fsencode(self.http_socket)) - _MAX_SOCKET_PATH_BYTES
        if surplus > 0:
            hint = f"is too long for a socket in it; choose a path {surplus} bytes shorter"
            raise InvalidInput("--state", str(self.directory), hint)
        for name, address in self.peers.items():
            if self.identity is None and not _is_loopback(address):
                hint = f"is not on loopback: peers on the network need --identity ({name})"
                raise InvalidInput("--peers", address, hint)

    @property
    def socket(self) -> Path:
        """Where gRPC clients find it."""
        return self.directory.absolute() / "etcd.sock"

    @property
    def http_socket(self) -> Path:
        """Where the watchdog finds it."""
        return self.directory.absolute() / "etcd-http.sock"

    @property
    def data(self) -> Path:
        """etcd's own directory."""
        return self.directory.absolute() / "etcd"

    @property
    def log(self) -> Path:
        """What etcd and the watchdog have to say."""
        return self.directory.absolute() / "etcd.log"

    def peer_url(self, name: str) -> str:
        """As the members know each other; one that stays alone needs no port."""
        if not self.peers:
            return f"unix://{self.directory.absolute() / 'peer.sock'}"
        return f"{'https' if self.identity else 'http'}://{self.peers[name]}"


def command_line(config: EtcdMemberConfig) -> list[str]:
    """etcd's, without the watchdog's."""
    heartbeat, election = config.timing.heartbeat, config.timing.election
    client = f"unix://{config.socket}"
    names = config.peers or (config.name,)
    cluster = ",".join(f"{name}={config.peer_url(name)}" for name in names)
    return [
        str(config.binary),
        f"--name={config.name}",
        f"--data-dir={config.data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-client-http-urls=unix://{config.http_socket}",
        f"--listen-peer-urls={_listening(config.peer_url(config.name))}",
        # Whoever starts replicas on one machine may hold their ports until they listen.
        "--socket-reuse-port",
        f"--initial-advertise-peer-urls={config.peer_url(config.name)}",
        f"--initial-cluster={cluster}",
        "--initial-cluster-token=bigfleet",
        f"--initial-cluster-state={'existing' if config.joining else 'new'}",
        f"--heartbeat-interval={heartbeat}",
        f"--election-timeout={election}",
        # A thousand revisions back is far more than a follower's watch ever lags.
        "--auto-compaction-mode=revision",
        "--auto-compaction-retention=1000",
        f"--max-txn-ops={_MAX_TXN_OPS}",
        f"--max-request-bytes={_MAX_REQUEST_BYTES}",
        "--log-level=warn",
        *_peer_certificates(config.identity if config.peers else None),
    ]


def _peer_certificates(identity: Identity | None) -> list[str]:
    if identity is None:
        return []
    return [
        f"--peer-cert-file={identity.directory / CERTIFICATE}",
        f"--peer-key-file={identity.directory / KEY}",
        f"--peer-trusted-ca-file={identity.directory / AUTHORITY}",
        "--peer-client-cert-auth",
        # Other identities of the fleet are of the same authority, and no members.
        f"--peer-cert-allowed-hostname={SERVER_NAME.format(role='coordinator')}",
        # Who dials is known by that name; its address may be anything.
        "--peer-skip-client-san-verification",
        "--tls-min-version=TLS1.3",
    ]


def _listening(peer_url: str) -> str:
    """etcd listens on addresses, not on names; a name of ours may be any of this host's."""
    scheme, _, address = peer_url.partition("://")
    if scheme == "unix":
        return peer_url
    host, _, port = address.rpartition(":")
    if _is_loopback(address):
        return peer_url.replace("localhost", "127.0.0.1")
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return f"{scheme}://0.0.0.0:{port}"
    return peer_url


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class EtcdMember:
    """The running child. Started anew by making another one."""

    def __init__(
        self, config: EtcdMemberConfig, process: asyncio.subprocess.Process, log_offset: int
    ) -> None:
        self._config, self._process = config, process
        self._log_offset = log_offset

    @classmethod
    async def start(cls, config: EtcdMemberConfig) -> EtcdMember:
        """Start etcd on its data directory. Call it from the main thread, which etcd dies with.

        Unavailable when it cannot be started at all.
        """
        config.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        config.directory.chmod(0o700)
        for socket in config.directory.glob("*.sock"):
            socket.unlink()  # left by a member that was killed
        stall_seconds = str(config.timing.stall / 1000)
        watchdog = (str(_WATCHDOG), str(os.getpid()), stall_seconds, str(config.http_socket))
        try:
            with config.log.open("ab") as log:
                log_offset = log.tell()
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-I", "-S", *watchdog, *command_line(config)),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError as error:
            raise Unavailable(f"etcd could not be started: {error}") from None
        return cls(config, process, log_offset)

    def keepalive(self) -> None:
        """Say that the coordinator is at work."""
        stdin = self._process.stdin
        # A watchdog that does not read gets no more than fills the pipe.
        if stdin is not None and not stdin.is_closing():
            with contextlib.suppress(OSError, RuntimeError):
                if stdin.transport.get_write_buffer_size() == 0:
                    stdin.write(b".")

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.returncode is None

    async def ended(self) -> str:
        """Wait for its end; how it ended and its last words."""
        status = await self._process.wait()
        words = etcd_log.tail(self._config.log)
        return f"etcd ended with status {status}; {self._config.log} ends:{words}"

    @property
    def was_removed(self) -> bool:
        """Whether it ended because its peers have taken it out."""
        return etcd_log.contains(self._config.log, self._log_offset, _REMOVED)

    async def stop(self) -> None:
        """End it, leadership handed over first where there is somebody to take it."""
        if self.running:
            self._process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(self._process.wait(), _STOP_TIMEOUT_SECONDS)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
