"""Who reaches whom where."""

from __future__ import annotations

import pytest

from loaddriver.substrates.base import RoleSpec, SubstrateError
from loaddriver.substrates.kind.addresses import AddressBook, NodeAddress
from loaddriver.substrates.kind.layout import NODE_PORTS
from loaddriver.substrates.kind.node import published
from tests.substrates.kind_substrate_rig import operator, provider, shard


@pytest.fixture
def book() -> AddressBook:
    """Two clusters, the provider and the shard in the first."""
    book = AddressBook(
        {
            "c1": NodeAddress("10.89.0.2", {port: 40000 + port for port in NODE_PORTS}),
            "c2": NodeAddress("10.89.0.3", {port: 10000 + port for port in NODE_PORTS}),
        }
    )
    book.place(provider(), "c1")
    book.place(shard(), "c1")
    return book


def test_a_neighbour_is_dialled_by_the_name_of_its_service(book: AddressBook) -> None:
    seen = book.seen_from("c1")
    assert seen["provider/listen"] == "provider.bigfleet-system.svc.cluster.local:8080"
    assert seen["shard-0/listen"] == "shard-0.bigfleet-system.svc.cluster.local:8080"


def test_a_peer_in_another_cluster_is_dialled_at_its_node(book: AddressBook) -> None:
    """Services end at their cluster's border."""
    assert book.seen_from("c2")["provider/listen"] == "10.89.0.2:30000"
    assert book.seen_from("c2")["shard-0/listen"] == "10.89.0.2:30001"


def test_the_harness_goes_by_loopback(book: AddressBook) -> None:
    assert book.from_here(shard(), "observe") == "127.0.0.1:70002"


def test_no_two_ports_of_a_cluster_are_the_same(book: AddressBook) -> None:
    ports = [*book.place(provider(), "c1"), *book.place(shard(), "c1")]
    ports += book.place(operator("c1"), "c1")
    assert len({port.node for port in ports}) == len(ports) == 4


def test_each_cluster_has_ports_of_its_own(book: AddressBook) -> None:
    [port] = book.place(operator("c2"), "c2")
    assert port.node == NODE_PORTS[0]


def test_a_role_that_is_started_again_keeps_its_ports(book: AddressBook) -> None:
    """Its peers go on dialling the same address."""
    assert book.place(shard(), "c1") == book.place(shard(), "c1")


def test_a_node_without_free_ports_is_an_error_that_says_so(book: AddressBook) -> None:
    greedy = RoleSpec("greedy", [], ports=[f"p{n}" for n in range(len(NODE_PORTS))])
    with pytest.raises(SubstrateError, match="cluster c1 has 13 of 16 ports left, 16 are needed"):
        book.place(greedy, "c1")


def test_only_ports_on_loopback_count_as_published() -> None:
    """As docker and podman tell them; ports that are not passed on have no entry or none."""
    told = {
        "30000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "45001"}],
        "6443/tcp": [{"HostIp": "127.0.0.1", "HostPort": "45002"}],
        "80/tcp": [{"HostIp": "0.0.0.0", "HostPort": "80"}],
        "53/udp": None,
    }
    assert published(told) == {30000: 45001, 6443: 45002}
