"""Rows of the coordinator's replicated store: immutable, stored as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias
from urllib.parse import quote

import msgspec

from bigfleet.model.domain import BY_RACK
from bigfleet.services.coordinator.domain_lifecycle import DomainState


class Leader(msgspec.Struct, frozen=True):
    """The leader. `address` is where it serves; `resigned`: it stepped down voluntarily."""

    id: str
    member_id: int
    term: int
    address: str
    resigned: bool = False


class TermBase(msgspec.Struct, frozen=True):
    """Offset from etcd's term to the coordinator's, so that terms keep growing after a restore."""

    term: int

    @property
    def key(self) -> str:
        """Its place in the store."""
        return "term-base"


class Shard(msgspec.Struct, frozen=True):
    """A shard that has reported. `leaving`: it is releasing everything; `removed`: it is barred.
    `address` is "" from the issue of a new epoch until the shard reports with it. `domain_keys`
    are the labels whose values are its domains; releases without them report none, meaning racks.
    """

    id: str
    address: str
    epoch: int
    registered_at_unix_ns: int
    leaving: bool = False
    removed: bool = False
    domain_keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.domain_keys:
            msgspec.structs.force_setattr(self, "domain_keys", tuple(BY_RACK))

    @property
    def key(self) -> str:
        """Its place in the store."""
        return f"shard/{quote(self.id, safe='')}"


class Cluster(msgspec.Struct, frozen=True):
    """A cluster and the shard that serves it."""

    id: str
    shard: str

    @property
    def key(self) -> str:
        """Its place in the store."""
        return f"cluster/{quote(self.id, safe='')}"


DomainName: TypeAlias = tuple[str, str]


class Domain(msgspec.Struct, frozen=True):
    """A topology domain and its shard. A free domain has no row.

    `instruction_id` identifies the instruction that follows from the row's last change. While the
    domain is being released, `to` is the transfer target, "" for none. `machines` is the number of
    machines when it was first assigned, and `instance_type` the most common type among them.
    `reason` is why the coordinator moved it last; "" if an administrator did, or if it was free.
    `home` is the shard of whose even part it is: the one that it was assigned to when it was free,
    or for balance. A domain that has moved for another reason is on loan, and moves no others.
    While it is being released, its shard is to drain the machines `drained` for pods of that
    priority.
    """

    topology_key: str
    topology_value: str
    shard: str
    state: DomainState
    instruction_id: str
    to: str = ""
    machines: int = 0
    instance_type: str = ""
    reason: str = ""
    home: str = ""
    drained: tuple[str, ...] = ()
    drained_for_priority: int = 0

    def __post_init__(self) -> None:
        if not self.home:  # as stored by earlier releases
            msgspec.structs.force_setattr(self, "home", self.shard)

    @property
    def name(self) -> DomainName:
        """Topology key and value."""
        return self.topology_key, self.topology_value

    @property
    def key(self) -> str:
        """Its place in the store."""
        return f"domain/{quote(self.topology_key, safe='')}/{quote(self.topology_value, safe='')}"


QuotaName: TypeAlias = tuple[str, str]


class Quota(msgspec.Struct, frozen=True):
    """How many machines of a provider's region each shard may have purchased; others none.

    `allowed` is what each shard may be using now: more than its part until it has confirmed a
    smaller one, less until others have confirmed theirs. `reasons` say why the coordinator changed
    a shard's part last.
    """

    provider: str
    region: str
    per_shard: Mapping[str, int]
    instruction_id: str
    allowed: Mapping[str, int] | None = None
    reasons: Mapping[str, str] = {}

    @property
    def name(self) -> QuotaName:
        """Provider and region."""
        return self.provider, self.region

    @property
    def allowances(self) -> Mapping[str, int]:
        """What each shard may be using; in rows of earlier releases, and in new ones, its part."""
        return self.per_shard if self.allowed is None else self.allowed

    def slice_of(self, shard: str) -> int:
        """How many machines the shard is told to have at most."""
        return min(self.per_shard.get(shard, 0), self.allowances.get(shard, 0))

    def instruction_for(self, shard: str) -> str:
        """Id of the instruction that carries this shard's slice."""
        return f"{self.instruction_id}/{shard}"

    @property
    def key(self) -> str:
        """Its place in the store."""
        return f"quota/{quote(self.provider, safe='')}/{quote(self.region, safe='')}"


class Provider(msgspec.Struct, frozen=True):
    """A region of a provider, as reported by the shard `reported_by`."""

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
    """The row under `key`; None for a table that this release does not know.

    msgspec.MsgspecError when it is damaged.
    """
    decoder = _DECODERS.get(key.partition("/")[0])
    return decoder.decode(value) if decoder else None


def put(*rows: Row) -> RowChanges:
    """Changes that write these rows."""
    return {row.key: row for row in rows}
