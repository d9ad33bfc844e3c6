"""Failed TLS handshakes are in the server's log and metrics, with the reason."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bigfleet.api.auth import handshakes
from bigfleet.api.auth.identity import Identity
from bigfleet.api.auth.tls_diagnosis import explain_failure
from tests.api.identity_rig import get, identity, refusal
from tests.support.ports import free_address

EXPIRED = timedelta(minutes=-1)
# Only a failing test waits this long: machines that run tests may be slow.
_PATIENCE_SECONDS = 60.0
MACHINE = {
    "id": "m-0",
    "state": "SPECULATIVE",
    "instance_type": "large",
    "zone": "a",
    "rack": "r",
    "capacity_type": "ON_DEMAND",
    "price_per_hour": 0.1,
    "interruption_probability": 0.0,
    "resources": {"cpu": "1", "memory": "1Gi", "pods": "10"},
    "labels": {},
}


@dataclass
class Running:
    """A provider process with an identity."""

    address: str
    observe: str
    log: Path

    async def failures(self) -> dict[str, float]:
        """Failed handshakes by reason, as its metrics have them."""
        async with aiohttp.ClientSession() as http, http.get(f"{self.observe}/metrics") as answer:
            text = await answer.text()
        start = "bigfleet_tls_handshakes_failed_total{"
        lines = [line for line in text.splitlines() if line.startswith(start)]
        return {line.split('"')[1]: float(line.split()[-1]) for line in lines}

    async def failed(self, reason: str) -> dict[str, Any]:
        """The log line about it, once the metric counts it and the line is written."""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while not ((await self.failures()).get(reason) and reason in self._said()):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        return self._said()[reason]

    async def warned(self, reason: str) -> dict[str, Any]:
        """The log line about it, once it is written."""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while reason not in self._said():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        return self._said()[reason]

    def _said(self) -> dict[str, dict[str, Any]]:
        """The log's lines by the reason that they name; not the one that is just being written."""
        lines = self.log.read_text().rpartition("\n")[0].splitlines()
        told = [json.loads(line) for line in lines if line.startswith("{")]
        return {line["reason"]: line for line in told if "reason" in line}


@asynccontextmanager
async def provider(folder: Path) -> AsyncIterator[Running]:
    own = identity(folder, "provider", "kwok").directory
    (folder / "inventory.jsonl").write_text(json.dumps(MACHINE))
    listen, observe = free_address(), free_address()
    running = Running(listen, f"http://{observe}", folder / "log")
    command = [sys.executable, "-m", "bigfleet", "provider", "--identity", str(own)]
    command += ["--listen", listen, "--observe", observe]
    command += ["--state", str(folder / "state")]
    command += ["--inventory", str(folder / "inventory.jsonl")]
    with running.log.open("w") as log:
        process = await asyncio.create_subprocess_exec(*command, stderr=log)
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS), aiohttp.ClientSession() as http:
            while not await _ready(http, running.observe):
                assert process.returncode is None, running.log.read_text()
                await asyncio.sleep(0.05)
        yield running
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _ready(http: aiohttp.ClientSession, observe: str) -> bool:
    try:
        async with http.get(f"{observe}/readyz") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


async def test_a_server_logs_why_it_rejected_a_peer(tmp_path: Path) -> None:
    """Expired, of another authority, plaintext and older TLS: each is a log line and a count.
    So is a peer that rejects us, with TLS's reason.
    """
    admin, expired = identity(tmp_path, "admin"), identity(tmp_path, "shard", "old", EXPIRED)
    stranger = identity(tmp_path / "other", "admin")
    (stranger.directory / "ca.crt").write_bytes((admin.directory / "ca.crt").read_bytes())
    async with provider(tmp_path) as running:
        for who, reason, meaning in (
            (expired, "expired", "the peer's certificate has expired"),
            (stranger, "authority", "was not signed by an authority in our ca.crt"),
            (None, "plaintext", "the peer speaks plaintext"),
        ):
            await refusal(get(running.address, who))
            assert meaning in (await running.failed(reason))["message"]
        distrusting = identity(tmp_path / "third", "admin")
        for who, role, reason, meaning in (
            (
                distrusting,
                "provider",
                "refused-by-peer",
                "the peer rejected our certificate",
            ),
            (admin, "shard", "name", "the peer expects shard.bigfleet.internal"),
        ):
            error = await refusal(get(running.address, who, role))
            await explain_failure(error, running.address, who, role)
            assert meaning in (await running.warned(reason))["message"]
        with pytest.raises(OSError):  # noqa: PT011  TLS's errors and a hung-up connection alike
            await asyncio.to_thread(_old_tls, running.address, admin)
        assert "does not speak TLS 1.3" in (await running.failed("old-tls"))["message"]


def test_settings_of_tls_come_before_its_library() -> None:
    """gRPC reads which ciphers it may use when it is first imported: not before flags are read."""
    code = "import bigfleet.__main__, sys; sys.exit('grpc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("line", "taken"),
    [
        ("I1 x.cc:1] Handshake failed with error SSL_ERROR_SSL: error:1:SSL:BAD_DECRYPT: x", True),
        ("I1 x.cc:1] something else", False),
    ],
)
def test_only_handshakes_are_read_from_the_native_log(line: str, taken: bool) -> None:
    """An unknown reason is counted as other; other lines are passed through."""
    assert handshakes.record_handshake_failure(line) is taken


def _old_tls(address: str, own: Identity) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(own.directory / "tls.crt", own.directory / "tls.key")
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=_PATIENCE_SECONDS) as plain:
        context.wrap_socket(plain).close()
