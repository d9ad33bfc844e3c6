"""Addresses of the roles' ports, for their peers and for the harness. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from loaddriver.substrates.base import RoleSpec, SubstrateError
from loaddriver.substrates.kind.layout import NODE_PORTS, object_name, service_host
from loaddriver.substrates.kind.manifests import Port
from loaddriver.substrates.placeholders import peer
from loaddriver.substrates.ports import LOOPBACK

_FIRST_CONTAINER_PORT = 8080


@dataclass(frozen=True)
class NodeAddress:
    """A cluster's node: its address among containers, and where its ports are on loopback here."""

    address: str
    published: Mapping[int, int]


@dataclass(frozen=True)
class _RoleAddresses:
    cluster: str
    host: str
    ports: Mapping[str, Port]


@dataclass
class AddressBook:
    """Assigns ports to roles, which keep them across restarts.

    A peer in the same cluster has its Service's name, one in another cluster its node's port.
    """

    nodes: Mapping[str, NodeAddress]
    _roles: dict[str, _RoleAddresses] = field(default_factory=dict)

    def place(self, role: RoleSpec, cluster: str) -> tuple[Port, ...]:
        """The role's ports in that cluster. Raises SubstrateError if its node has none left."""
        if role.name not in self._roles:
            free = self._free(cluster)
            if len(role.ports) > len(free):
                raise SubstrateError(
                    f"role {role.name}: cluster {cluster} has {len(free)} of "
                    f"{len(NODE_PORTS)} ports left, {len(role.ports)} are needed"
                )
            ports = {
                name: Port(name, _FIRST_CONTAINER_PORT + number, free[number])
                for number, name in enumerate(role.ports)
            }
            self._roles[role.name] = _RoleAddresses(cluster, service_host(object_name(role)), ports)
        return tuple(self._roles[role.name].ports.values())

    def seen_from(self, cluster: str) -> dict[str, str]:
        """Every port of every role so far, by placeholder, as that cluster's pods dial it."""
        return {
            peer(role, name): (
                f"{place.host}:{port.container}"
                if place.cluster == cluster
                else f"{self.nodes[place.cluster].address}:{port.node}"
            )
            for role, place in self._roles.items()
            for name, port in place.ports.items()
        }

    def from_here(self, role: RoleSpec, port: str) -> str:
        """The address of a role's port for the harness."""
        place = self._roles[role.name]
        published = self.nodes[place.cluster].published[place.ports[port].node]
        return f"{LOOPBACK}:{published}"

    def _free(self, cluster: str) -> list[int]:
        taken = {
            port.node
            for place in self._roles.values()
            if place.cluster == cluster
            for port in place.ports.values()
        }
        return [port for port in NODE_PORTS if port not in taken]
