"""The limit of what one cluster may request, in bytes; what exceeds it is left out need by need.

Otherwise a cluster with an endless number of profiles or groups would delay the decisions for all
others. The needs that would be served last are left out: those of the lowest priority and, of equal
priority, those that arrived last. So a need that is served is never displaced by a new one of its
own priority, and no need is served while one that goes before it is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from bigfleet.api import need_codec
from bigfleet.api.v1alpha1 import capacity_pb2 as wire
from bigfleet.model.group import ADDITIONAL, group_text
from bigfleet.services.shard.demand.rollup_rows import MAX_NEED_BYTES, Key, NeedRow

# Bytes of one cluster's needs as they are encoded: a hundred needs of 1,024 sizes.
MAX_DEMAND_BYTES = 2**22
# A need counts at least so many, for its row and its share of a decision: at most 10,485 needs.
MIN_BYTES_OF_A_NEED = 400

_ADDITIONAL = group_text(ADDITIONAL)
_NEVER_ARRIVED = float("inf")


def beyond_limit(
    needs: Sequence[wire.CapacityNeed],
    encoded: Sequence[bytes],
    rows: Mapping[Key, NeedRow],
    known: Mapping[bytes, NeedRow],
) -> frozenset[int]:
    """The indices of the needs that are left out. `encoded` are the needs' bytes, `rows` the needs
    in force and `known` the same by their bytes.
    """
    at_most = sum(map(len, encoded)) + len(encoded) * MIN_BYTES_OF_A_NEED
    if at_most <= MAX_DEMAND_BYTES or sum(map(_weight, encoded)) <= MAX_DEMAND_BYTES:
        return frozenset()

    def roughly(index: int) -> tuple[int, bool, bytes]:
        return -needs[index].priority, encoded[index] not in known, encoded[index]

    def exactly(index: int) -> tuple[int, float, bool, Key]:
        need, row = needs[index], known.get(encoded[index])
        key = row.need.key if row else need_codec.key_from_wire(need) or ("", "")
        row = row or rows.get(key)
        arrived = row.arrival_seconds if row else _NEVER_ARRIVED
        return -need.priority, arrived, need.group == _ADDITIONAL, key

    # Keys take long to compute: of very many needs only the first are compared exactly.
    candidates = _first(sorted(range(len(needs)), key=roughly), encoded, 2 * MAX_DEMAND_BYTES)
    admitted = set(_first(sorted(candidates, key=exactly), encoded, MAX_DEMAND_BYTES))
    return frozenset(range(len(needs))) - admitted


def _weight(encoded: bytes) -> int:
    """What a need counts; nothing if it is rejected anyway because it alone is too large."""
    return 0 if len(encoded) > MAX_NEED_BYTES else max(len(encoded), MIN_BYTES_OF_A_NEED)


def _first(ranked: Iterable[int], encoded: Sequence[bytes], most: int) -> Iterator[int]:
    """The longest beginning of `ranked` that has at most `most` bytes."""
    used = 0
    for index in ranked:
        used += _weight(encoded[index])
        if used > most:
            return
        yield index
