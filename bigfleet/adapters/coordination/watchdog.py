"""Runs a coordinator's etcd member and reacts when one of the two fails.

    python -I -S watchdog.py PARENT_PID STALL_SECONDS HTTP_SOCKET ETCD ARGUMENT...

A script that is run, not imported: it uses only the standard library, so that it starts fast and
stays small. The coordinator writes a keepalive, any byte, to its standard input.

- No keepalive for STALL_SECONDS while the member leads: leadership is transferred to another
  member. The coordinator may be stopped or stuck, and its etcd would go on leading without it.
- End of file: the coordinator is gone, and the member is killed. The kernel does the same if this
  process is killed.
- SIGTERM: the member is terminated, which transfers leadership first.
"""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
_REQUEST_TIMEOUT_SECONDS = 0.5
_POLL_INTERVAL_SECONDS = 0.05
_TRANSFER_RETRY_SECONDS = 0.1


def main(arguments: list[str]) -> int:
    """Run until the member exits; return its exit status."""
    parent, stall_seconds, http_socket, *command = arguments
    _set_parent_death_signal(int(parent))
    _inherit_niceness()
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        preexec_fn=partial(_set_parent_death_signal, os.getpid()),  # noqa: PLW1509 - no threads here
    ) as etcd:
        signal.signal(signal.SIGTERM, lambda *_: etcd.terminate())
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles a terminal's Ctrl-C
        _watch(etcd, float(stall_seconds), http_socket)
    return etcd.returncode if etcd.returncode >= 0 else 128 - etcd.returncode


def _set_parent_death_signal(parent: int) -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above took effect
        os._exit(1)


def _inherit_niceness() -> None:
    """Apply the niceness to the autogroup of this new session, within which alone it counts."""
    with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as group:
        group.write(str(os.getpriority(os.PRIO_PROCESS, 0)))


def _watch(etcd: subprocess.Popen[bytes], stall_seconds: float, http_socket: str) -> None:
    last_keepalive = next_transfer = time.monotonic()
    while etcd.poll() is None:
        if select.select([0], [], [], _POLL_INTERVAL_SECONDS)[0]:
            if not os.read(0, 4096):
                etcd.kill()
                etcd.wait()
                return
            last_keepalive = time.monotonic()
        now = time.monotonic()
        if now - last_keepalive > stall_seconds and now > next_transfer:
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError, KeyError):
                _transfer_leadership(http_socket, now - last_keepalive)
            next_transfer = time.monotonic() + _TRANSFER_RETRY_SECONDS


def _transfer_leadership(http_socket: str, silent_seconds: float) -> None:
    """Transfer leadership from this member, if it leads, to a connected voter."""
    status = _post(http_socket, "/v3/maintenance/status")
    me = status["header"]["member_id"]
    if status.get("leader") != me:
        return
    for transfer_target in _transfer_targets(http_socket, me):
        answer = _post(http_socket, "/v3/maintenance/transfer-leadership", targetID=transfer_target)
        transferred = "code" not in answer
        _log(f"coordinator silent for {silent_seconds:.1f} s", transfer_target, transferred)
        if transferred:
            return


def _transfer_targets(http_socket: str, me: str) -> Iterator[str]:
    members = _post(http_socket, "/v3/cluster/member/list")["members"]
    yield from (m["ID"] for m in members if m["ID"] != me and not m.get("isLearner"))


def _post(http_socket: str, path: str, **body: str) -> Any:
    connection = http.client.HTTPConnection("etcd", timeout=_REQUEST_TIMEOUT_SECONDS)
    connection.sock = socket.socket(socket.AF_UNIX)
    try:
        connection.sock.settimeout(_REQUEST_TIMEOUT_SECONDS)
        connection.sock.connect(http_socket)
        connection.request("POST", path, json.dumps(body))
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def _log(why: str, transfer_target: str, transferred: bool) -> None:
    line = {
        "level": "warn",
        "msg": "transferring leadership",
        "why": why,
        "to": transfer_target,
        "transferred": transferred,
    }
    with contextlib.suppress(OSError):
        sys.stderr.write(json.dumps(line) + "\n")
        sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
