"""One cluster's needs: in a roll-up, in force, and how they change."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from bigfleet.api import need_codec
from bigfleet.api.v1alpha1 import capacity_pb2 as wire
from bigfleet.engine.snapshot import NONE
from bigfleet.model.errors import InvalidInput
from bigfleet.model.group import Additional
from bigfleet.model.need import Need

# A thousand label values of the greatest length; the largest real need seen has some 2 KiB.
MAX_NEED_BYTES = 2**18

Key = tuple[str, str]
# Needs by key, each with its wire bytes.
NeedsByKey = dict[Key, tuple[bytes, Need]]
_Order = tuple[int, float, str, bool, tuple[str, str]]


@dataclass(slots=True, eq=False)
class NeedRow:
    """One need in force; `wire_bytes` are its last encoding, `number` is its key's, `order` its
    sort key among all, and `place` its position among them.
    """

    need: Need
    wire_bytes: bytes
    cluster_number: int
    number: int
    order: _Order
    in_force: bool = True
    place: int = NONE

    @property
    def key(self) -> Key:
        """The need's."""
        return self.order[-1]

    @property
    def cluster(self) -> str:
        """Its cluster's name."""
        return self.order[2]

    @property
    def arrival_seconds(self) -> float:
        """When its cluster first requested it, in monotonic seconds."""
        return self.order[1]


def encoded(rollup: wire.ClusterCapacityNeeds) -> Sequence[bytes]:
    """The bytes of each need, in a fraction of the time that it takes to encode them one by one."""
    parts = _NeedsAsBytes.FromString(rollup.SerializeToString(deterministic=True))
    return list(parts.needs)


def _message_with_needs_as_bytes() -> Any:
    """A roll-up whose needs are read as bytes: a message and bytes have the same encoding."""
    field = descriptor_pb2.FieldDescriptorProto(
        name="needs",
        number=wire.ClusterCapacityNeeds.NEEDS_FIELD_NUMBER,
        label=descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED,
        type=descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    )
    message = descriptor_pb2.DescriptorProto(name="NeedsAsBytes", field=[field])
    file = descriptor_pb2.FileDescriptorProto(
        name="needs_as_bytes.proto", syntax="proto3", message_type=[message]
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(message.name))


_NeedsAsBytes = _message_with_needs_as_bytes()


class Difference(NamedTuple):
    """What a roll-up changes about the needs in force: those that are new or have a new version,
    and which rows stay as they are. All other rows are gone.
    """

    changed: NeedsByKey
    kept: Set[NeedRow]

    def gone(self, rows: Mapping[Key, NeedRow]) -> Set[NeedRow]:
        """The rows in force that have no need any more, or another version."""
        return set(rows.values()) - self.kept

    def additions(self, rows: Mapping[Key, NeedRow]) -> Difference:
        """The needs that are new or ask for no fewer pods; all other rows stay."""
        more = {
            key: (wire_bytes, need)
            for key, (wire_bytes, need) in self.changed.items()
            if key not in rows or need.pods >= rows[key].need.pods
        }
        return Difference(more, {row for key, row in rows.items() if key not in more})


def read(
    rollup: wire.ClusterCapacityNeeds,
    needs: Mapping[int, bytes],
    rows: Mapping[Key, NeedRow],
    known: Mapping[bytes, NeedRow],
) -> tuple[Difference, Mapping[int, str]]:
    """What the roll-up's valid needs change, and the errors of the others by index. `needs` has the
    bytes of those to read; `rows` are in force, `known` the same by their bytes. Most needs have
    the same bytes as before, and nothing more is done for these than to look them up.
    """
    kept: set[NeedRow] = set()
    unseen: list[int] = []
    for number, row in zip(needs, map(known.get, needs.values()), strict=True):
        if row is None or row in kept:
            unseen.append(number)
        else:
            kept.add(row)
    changed: NeedsByKey = {}
    faults: dict[int, InvalidInput] = {}
    for number in unseen:
        where = f"cluster {rollup.cluster_id}, need {number}"
        try:
            need = _parsed(rollup.needs[number], len(needs[number]), where)
            if need.key in changed or rows.get(need.key) in kept:
                raise InvalidInput(where, need.key, "repeats the profile and group of another need")
        except InvalidInput as error:
            faults[number] = error
        else:
            changed[need.key] = needs[number], need
    if faults and not changed and not kept:
        raise next(iter(faults.values()))
    kept.update(_last_valid(rollup, faults, rows, changed))
    return Difference(changed, kept), {number: str(error) for number, error in faults.items()}


def _last_valid(
    rollup: wire.ClusterCapacityNeeds,
    faults: Iterable[int],
    rows: Mapping[Key, NeedRow],
    changed: Collection[Key],
) -> Iterator[NeedRow]:
    """The rows of faulty needs that have been valid before."""
    for number in faults:
        key = need_codec.key_from_wire(rollup.needs[number])
        if key is not None and key in rows and key not in changed:
            yield rows[key]


def _parsed(raw: wire.CapacityNeed, size: int, where: str) -> Need:
    if size > MAX_NEED_BYTES:
        hint = f"bytes exceed the limit of {MAX_NEED_BYTES} per need"
        raise InvalidInput(where, size, hint)
    return need_codec.need_from_wire(raw, where)


def pods_of(needs: Iterable[Need]) -> int:
    """Number of pods; those of additional needs are part of another need already."""
    return sum(need.pods for need in needs if not isinstance(need.group, Additional))


class Trends:
    """When demand last rose and fell, by cluster number, in monotonic seconds; absent if never.

    Both may happen at once: one need grows while another shrinks.
    """

    def __init__(self) -> None:
        self.rose_seconds: dict[int, float] = {}
        self.fell_seconds: dict[int, float] = {}

    def note(
        self,
        cluster: int,
        before: Mapping[Key, Need],
        after: Mapping[Key, Need],
        now_seconds: float,
    ) -> None:
        """Record a replacement of a cluster's needs, of which those that stay need not be given.
        Additional needs do not count: they change with kube-scheduler's placements.
        """
        old = {key for key, need in before.items() if not isinstance(need.group, Additional)}
        new = {key for key, need in after.items() if not isinstance(need.group, Additional)}
        rose, fell = bool(new - old), bool(old - new)
        for key in old & new:
            one, other = before[key], after[key]
            if one is not other and one.sizes != other.sizes:
                rose |= _has_grown(one, other)
                fell |= _has_grown(other, one)
        if rose:
            self.rose_seconds[cluster] = now_seconds
        if fell:
            self.fell_seconds[cluster] = now_seconds

    def forget(self, cluster: int) -> None:
        """Drop a removed cluster."""
        self.rose_seconds.pop(cluster, None)
        self.fell_seconds.pop(cluster, None)


def _has_grown(before: Need, after: Need) -> bool:
    """Whether the number of pods has grown or, for the same number, their requests."""
    if after.pods != before.pods:
        return after.pods > before.pods
    return any(amount > before.aggregate.get(name, 0) for name, amount in after.aggregate.items())
