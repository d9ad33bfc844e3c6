"""A worker may be started before its master."""

from __future__ import annotations

import socket
import threading

import pytest

from loaddriver.commands import load_worker
from loaddriver.commands.load_worker import await_master
from loaddriver.errors import LoadTimeoutError

LOOPBACK = "127.0.0.1"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks again soon."""
    monkeypatch.setattr(load_worker, "_POLL_SECONDS", 0.01)


def unused() -> socket.socket:
    """A socket that has a port, and does not listen there yet."""
    made = socket.socket()
    made.bind((LOOPBACK, 0))
    return made


def test_it_waits_until_somebody_listens() -> None:
    with unused() as master:
        waiting = threading.Thread(target=await_master, args=(*master.getsockname(), 60.0))
        waiting.start()
        waiting.join(0.1)
        assert waiting.is_alive()
        master.listen()
        waiting.join(60.0)
        assert not waiting.is_alive()


@pytest.mark.parametrize("host", [LOOPBACK, "no-such-host.invalid"])
def test_it_gives_up_with_the_address(host: str) -> None:
    """Also if that is no host's, as before the runner has a pod."""
    with unused() as master:
        port = master.getsockname()[1]
        with pytest.raises(LoadTimeoutError, match=f"nobody listens at {host}:{port} after 0.05 s"):
            await_master(host, port, 0.05)
