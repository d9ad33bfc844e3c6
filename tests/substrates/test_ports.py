from __future__ import annotations

import errno
import socket
from collections.abc import Iterator

import pytest

from loaddriver.substrates.ports import LOOPBACK, HeldPorts


@pytest.fixture
def ports() -> Iterator[HeldPorts]:
    with HeldPorts() as held:
        yield held


def sharing_listener(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind((LOOPBACK, port))
    listener.listen()
    return listener


def test_every_connection_to_a_held_port_reaches_the_listener(ports: HeldPorts) -> None:
    """The holding socket never listens, so it takes no connection away."""
    port = ports.hold("server")
    with sharing_listener(port) as listener:
        for _ in range(200):
            with socket.create_connection((LOOPBACK, port), timeout=1):
                listener.settimeout(1)
                accepted, _ = listener.accept()
                accepted.close()


def test_nobody_answers_on_a_held_port_before_its_owner_listens(ports: HeldPorts) -> None:
    """Else a health check would take the holder for the component."""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK, ports.hold("server")), timeout=1)


def test_another_process_cannot_take_a_held_port(ports: HeldPorts) -> None:
    """A bind without SO_REUSEPORT is refused, before and while the owner listens."""
    port = ports.hold("server")
    with socket.socket() as stranger, pytest.raises(OSError) as refusal:  # noqa: PT011
        stranger.bind((LOOPBACK, port))
    assert refusal.value.errno == errno.EADDRINUSE
    with sharing_listener(port), socket.socket() as stranger, pytest.raises(OSError):  # noqa: PT011
        stranger.bind((LOOPBACK, port))


def test_nobody_who_asks_for_any_port_is_given_a_held_one(ports: HeldPorts) -> None:
    """Not even another holder, although it would be willing to share."""
    held = [ports.hold(f"server-{i}") for i in range(300)]
    assert len(set(held)) == 300
    with HeldPorts() as other:
        assert not set(held) & {other.hold(f"server-{i}") for i in range(300)}


def test_an_outgoing_connection_does_not_use_up_a_held_port(ports: HeldPorts) -> None:
    """Clients get their own ports from the same range; those of servers are spared."""
    port = ports.hold("server")
    with sharing_listener(port):
        clients = [socket.create_connection((LOOPBACK, port)) for _ in range(50)]
        assert port not in {client.getsockname()[1] for client in clients}
        for client in clients:
            client.close()


def test_an_owner_that_is_started_again_gets_its_port_back(ports: HeldPorts) -> None:
    assert ports.hold("shard-0/grpc") == ports.hold("shard-0/grpc")


def test_released_ports_can_be_bound_by_anyone(ports: HeldPorts) -> None:
    port = ports.hold("server")
    ports.release()
    with socket.socket() as stranger:
        stranger.bind((LOOPBACK, port))
