"""What the coordinator keeps, as rows of the replicated store. Frozen; JSON in the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias
from urllib.parse import quote

import msgspec

from bigfleet.services.coordinator.domain_lifecycle import DomainState


class Leader(msgspec.Struct, frozen=True):
    """Who leads. `address` is where its calls are answered; `resigned`: it went of its own will."""

    id: str
    member_id: int
    term: int
    address: str
    resigned: bool = False


class TermBase(msgspec.Struct, frozen=True):
    """Added to the store's term to give the coordinator's, so that terms go on after a restore."""

    term: int

    @property
    def key(self) -> str:
        """Its place in the store."""
        return "term-base"


class Shard(msgspec.Struct, frozen=True):
    """A shard that has reported. `leaving`: it gives everything up; `removed`: it never returns.
    `address` is "" from when it was given a new epoch until it reports with that. `domain_keys` are
    the labels by which it tells domains apart; none where an earlier release wrote the row.
    """

    id: str
    address: str
    epoch: int
    registered_at_unix_ns: int
    leaving: bool = False
    removed: bool = False
    domain_keys: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Its place in the store."""
        return f"shard/{quote(self.id, safe='')}"


class Cluster(msgspec.Struct, frozen=True):
    """Which shard serves a cluster."""

    id: str
    shard: str

    @property
    def key(self) -> str:
        """Its place in the store."""
        return f"cluster/{quote(self.id, safe='')}"


DomainName: TypeAlias = tuple[str, str]


class Domain(msgspec.Struct, frozen=True):
    """A topology domain and whose it is. A free domain has no row.

    `instruction_id` is the id of the instruction that the last change of this row asks for. While
    the domain is being released, `to` is who gets it next, "" for nobody yet. `machines` is how
    many it had when it was first given away, and `instance_type` the commonest of them.
    """

    topology_key: str
    topology_value: str
    shard: str
    state: DomainState
    instruction_id: str
    to: str = ""
    machines: int = 0
    instance_type: str = ""

    @property
    def name(self) -> DomainName:
        """Topology key and value."""
        return self.topology_key, self.topology_value

    @property
    def key(self) -> str:
        """Its place in the store."""
        return f"domain/{quote(self.topology_key, safe='')}/{quote(self.topology_value, safe='')}"


class Quota(msgspec.Struct, frozen=True):
    """How many machines of a provider's region each shard may hold bought; others none."""

    provider: str
    region: str
    per_shard: Mapping[str, int]
    instruction_id: str

    @property
    def key(self) -> str:
        """Its place in the store."""
        return f"quota/{quote(self.provider, safe='')}/{quote(self.region, safe='')}"


class Provider(msgspec.Struct, frozen=True):
    """A region of a provider that shards see; the word of the shard `reported_by` counts."""

    name: str
    address: str
    region: str
    reported_by: str

    @property
    def key(self) -> str:
        """Its place in the store."""
        return f"provider/{quote(self.name, safe='')}/{quote(self.region, safe='')}"


Row: TypeAlias = TermBase | Shard | Cluster | Domain | Quota | Provider
RowChanges: TypeAlias = dict[str, Row | None]

_DECODERS: Mapping[str, msgspec.json.Decoder[Row]] = {
    "term-base": msgspec.json.Decoder(TermBase),
    "shard": msgspec.json.Decoder(Shard),
    "cluster": msgspec.json.Decoder(Cluster),
    "domain": msgspec.json.Decoder(Domain),
    "quota": msgspec.json.Decoder(Quota),
    "provider": msgspec.json.Decoder(Provider),
}
encode = msgspec.json.Encoder().encode
leader_decoder = msgspec.json.Decoder(Leader)


def decode(key: str, value: bytes) -> Row | None:
    """The row under `key`; None for a kind of row that this release does not know.

    msgspec.MsgspecError when it is damaged.
    """
    decoder = _DECODERS.get(key.partition("/")[0])
    return decoder.decode(value) if decoder else None


def put(*rows: Row) -> RowChanges:
    """Changes that write these rows."""
    return {row.key: row for row in rows}
