"""Configuration of a coordinator replica."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from bigfleet.adapters.coordination.etcd_member import EtcdMemberConfig
from bigfleet.api.auth.identity import Identity
from bigfleet.flags import (
    ADVERTISE,
    LISTEN,
    OBSERVE,
    STATE,
    Flag,
    check_advertised,
    parse_addresses,
    parse_peers,
)
from bigfleet.model.errors import InvalidInput
from bigfleet.services.coordinator import validation


@dataclass(frozen=True)
class CoordinatorConfig:
    """Port 0 lets the system choose.

    `state_directory` belongs to this replica alone. `etcd` is the binary. `peers` are the etcd
    peer addresses (HOST:PORT) of all replicas by id, including this one; empty for a permanently
    single replica. `join` are running coordinators through which a later replica joins; empty for
    the initial ones. `advertised` is the address given to clients, "" for the listen address. No
    domain is assigned before `expected_shards` have registered.
    """

    node_id: Annotated[str, Flag("--node-id", "unique name of this replica", "ID")]
    listen_port: Annotated[int, LISTEN]
    observe_port: Annotated[int, OBSERVE]
    state_directory: Annotated[Path, STATE]
    etcd: Annotated[Path, Flag("--etcd", "the etcd binary", "PATH")]
    peers: Annotated[
        Mapping[str, str],
        Flag(
            "--peers",
            "etcd peer addresses of all replicas, this one included; without it the replica is "
            "the only one and stays so",
            "ID=HOST:PORT,...",
            parse_peers,
        ),
    ] = field(default_factory=dict)
    listen_host: str = "127.0.0.1"
    observe_host: str = "127.0.0.1"
    advertised: Annotated[str, ADVERTISE] = ""
    join: Annotated[
        Sequence[str],
        Flag(
            "--join",
            "coordinators to join, for a replica added to a running cluster",
            "HOST:PORT,...",
            parse_addresses,
        ),
    ] = ()
    expected_shards: Annotated[
        int,
        Flag("--expected-shards", "assign no domain until so many shards have registered", "N"),
    ] = 1
    identity: Identity | None = None

    def __post_init__(self) -> None:
        """InvalidInput for values with which no replica can work."""
        check_advertised(self.listen_host, self.listen_port, self.advertised)
        validation.name("--node-id", self.node_id)
        if set(self.node_id) & set("=,"):
            raise InvalidInput("--node-id", self.node_id, "contains a comma or an equals sign")
        for address in self.peers.values():
            validation.address("--peers", address)
        if len(set(self.peers.values())) < len(self.peers):
            hint = "gives two replicas one address"
            raise InvalidInput("--peers", ", ".join(self.peers.values()), hint)
        if self.join and not self.peers:
            raise InvalidInput("--peers", "", "is empty; a joining replica lists all replicas")
        if self.expected_shards < 1:
            raise InvalidInput("--expected-shards", self.expected_shards, "is not > 0")
        self.member()

    def member(self) -> EtcdMemberConfig:
        """Configuration of this replica's etcd member."""
        return EtcdMemberConfig(
            name=self.node_id,
            binary=self.etcd,
            directory=self.state_directory,
            peers=self.peers,
            joining=bool(self.join),
            identity=self.identity,
        )
