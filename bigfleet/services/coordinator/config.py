"""Configuration of a coordinator replica."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bigfleet.adapters.coordination.etcd_member import EtcdMemberConfig, EtcdTiming
from bigfleet.api.auth.identity import Identity
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

    node_id: str
    listen_port: int
    observe_port: int
    state_directory: Path
    etcd: Path
    peers: Mapping[str, str]
    listen_host: str = "127.0.0.1"
    observe_host: str = "127.0.0.1"
    advertised: str = ""
    join: Sequence[str] = ()
    expected_shards: int = 1
    identity: Identity | None = None
    timing: EtcdTiming = field(default_factory=EtcdTiming)

    def __post_init__(self) -> None:
        """InvalidInput for values that cannot work."""
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
            timing=self.timing,
        )
