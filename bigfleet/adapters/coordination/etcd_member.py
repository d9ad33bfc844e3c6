"""The etcd member of a coordinator, as a child process.

Clients use Unix sockets in the state directory, protected by its permissions; only the peer port is
on the network, on loopback or protected by mutual TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from bigfleet.adapters.coordination import etcd_log
from bigfleet.api.auth.identity import AUTHORITY, CERTIFICATE, KEY, Identity
from bigfleet.api.transport import SERVER_NAME
from bigfleet.model.errors import InvalidInput, Unavailable

_WATCHDOG = Path(__file__).with_name("watchdog.py")
# Linux limits the path of a Unix socket to 107 bytes.
_MAX_SOCKET_PATH_BYTES = 107
_STOP_TIMEOUT_SECONDS = 5.0
# One report may change about two thousand rows in one transaction.
_MAX_TXN_OPS = 4096
_MAX_REQUEST_BYTES = 8 * 2**20
# A follower starts an election after one to two election timeouts without a heartbeat.
_HEARTBEAT_MILLISECONDS, _ELECTION_MILLISECONDS = 60, 300
# How long a coordinator may be silent before leadership is transferred away from it.
_STALL_SECONDS = 0.5
# Logged before it exits, when its peers have removed it.
_REMOVED = "the member has been permanently removed from the cluster"


@dataclass(frozen=True)
class EtcdMemberConfig:
    """`peers` are HOST:PORT by name, `name` included; empty for a single-member cluster.
    `joining`: the cluster exists already.

    InvalidInput for values that etcd would reject, or peers on the network without an identity.
    """

    name: str
    binary: Path
    directory: Path
    peers: Mapping[str, str]
    joining: bool = False
    identity: Identity | None = None

    def __post_init__(self) -> None:
        if self.peers and self.name not in self.peers:
            known = ", ".join(self.peers)
            raise InvalidInput("--peers", known, f"does not name this replica, {self.name}")
        if not os.access(self.binary, os.X_OK):
            raise InvalidInput("--etcd", str(self.binary), "is not an executable file")
        surplus = len(os.fsencode(self.http_socket)) - _MAX_SOCKET_PATH_BYTES
        if surplus > 0:
            hint = f"is too long for a Unix socket; choose a path {surplus} bytes shorter"
            raise InvalidInput("--state", str(self.directory), hint)
        for name, address in self.peers.items():
            if self.identity is None and not _is_loopback(address):
                hint = f"is not on loopback: peers on the network need --identity ({name})"
                raise InvalidInput("--peers", address, hint)

    @property
    def socket(self) -> Path:
        """The socket for gRPC clients."""
        return self.directory.absolute() / "etcd.sock"

    @property
    def http_socket(self) -> Path:
        """The socket for the watchdog."""
        return self.directory.absolute() / "etcd-http.sock"

    @property
    def data(self) -> Path:
        """etcd's data directory."""
        return self.directory.absolute() / "etcd"

    @property
    def log(self) -> Path:
        """The log of etcd and the watchdog."""
        return self.directory.absolute() / "etcd.log"

    def peer_url(self, name: str) -> str:
        """The member's peer URL; a single member needs no port."""
        if not self.peers:
            return f"unix://{self.directory.absolute() / 'peer.sock'}"
        return f"{'https' if self.identity else 'http'}://{self.peers[name]}"


def command_line(config: EtcdMemberConfig) -> list[str]:
    """The command line of etcd, without the watchdog's."""
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
        # A launcher on one machine may reserve the ports until the replicas listen.
        "--socket-reuse-port",
        f"--initial-advertise-peer-urls={config.peer_url(config.name)}",
        f"--initial-cluster={cluster}",
        "--initial-cluster-token=bigfleet",
        f"--initial-cluster-state={'existing' if config.joining else 'new'}",
        f"--heartbeat-interval={_HEARTBEAT_MILLISECONDS}",
        f"--election-timeout={_ELECTION_MILLISECONDS}",
        # A follower's watch lags far less than a thousand revisions.
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
        # Other identities of the fleet have the same CA but are not members.
        f"--peer-cert-allowed-hostname={SERVER_NAME.format(role='coordinator')}",
        # Peers are identified by that name, not by their address.
        "--peer-skip-client-san-verification",
        "--tls-min-version=TLS1.3",
    ]


def _listening(peer_url: str) -> str:
    """The listen URL: etcd takes addresses only, and a host name may be any of this host's."""
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
    """A running etcd process; a restart creates another instance."""

    def __init__(
        self, config: EtcdMemberConfig, process: asyncio.subprocess.Process, log_offset: int
    ) -> None:
        self._config, self._process = config, process
        self._log_offset = log_offset

    @classmethod
    async def start(cls, config: EtcdMemberConfig) -> EtcdMember:
        """Start etcd on its data directory. Call it from the main thread, with which etcd dies.

        Unavailable if it cannot be started.
        """
        config.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        config.directory.chmod(0o700)
        for socket in config.directory.glob("*.sock"):
            socket.unlink()  # left behind by a killed member
        watchdog = (str(_WATCHDOG), str(os.getpid()), str(_STALL_SECONDS), str(config.http_socket))
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
        """Send a keepalive to the watchdog."""
        stdin = self._process.stdin
        # Do not buffer for a watchdog that does not read.
        if stdin is not None and not stdin.is_closing():
            with contextlib.suppress(OSError, RuntimeError):
                if stdin.transport.get_write_buffer_size() == 0:
                    stdin.write(b".")

    @property
    def running(self) -> bool:
        """Whether the process is running."""
        return self._process.returncode is None

    async def ended(self) -> str:
        """Wait until it exits; return its exit status and last messages."""
        status = await self._process.wait()
        messages = etcd_log.tail(self._config.log)
        return f"etcd exited with status {status}; {self._config.log} ends:{messages}"

    @property
    def was_removed(self) -> bool:
        """Whether it exited because it was removed from the cluster."""
        return etcd_log.contains(self._config.log, self._log_offset, _REMOVED)

    async def stop(self) -> None:
        """Terminate it; leadership is transferred first if there is another member."""
        if self.running:
            self._process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(self._process.wait(), _STOP_TIMEOUT_SECONDS)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
