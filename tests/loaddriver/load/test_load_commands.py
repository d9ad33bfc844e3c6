"""How many processes there are, and where a master listens."""

from __future__ import annotations

import pytest

from loaddriver.load.commands import LoadPlace, host_and_port


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("a.b:5557", ("a.b", 5557)),
        ("0.0.0.0:1", ("0.0.0.0", 1)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_an_address_is_a_host_and_a_port(address: str, expected: tuple[str, int]) -> None:
    assert host_and_port(address) == expected


@pytest.mark.parametrize("address", ["", "a", "a:", ":1", "a:0", "a:65536", "a:b"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        host_and_port(address)


def test_one_worker_needs_no_master_unless_it_is_on_another_host() -> None:
    assert not LoadPlace().distributed
    assert LoadPlace(workers=2).distributed
    assert LoadPlace(listen="a:1").distributed


def test_workers_beside_the_master_are_reached_on_loopback_only() -> None:
    assert LoadPlace(workers=2).address()[0] == "127.0.0.1"
    assert LoadPlace(workers=2, listen="a:1").address() == ("a", 1)
