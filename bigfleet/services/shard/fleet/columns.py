"""The inventory's columns: one array per property, one row per machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bigfleet.engine.snapshot import NONE, Bytes, Flags, Floats, Ints
from bigfleet.model import penalty
from bigfleet.model.machine import MachineState

# Values of a new row.
_INITIAL: dict[str, np.generic] = {
    "flavour": np.int32(NONE),
    "state": np.uint8(0),
    "cluster": np.int32(NONE),
    "need": np.int32(NONE),
    "priority": np.int32(0),
    "interruption_bucket": np.uint8(penalty.ZERO),
    "reclamation_bucket": np.uint8(penalty.ZERO),
    "unused_since_seconds": np.float64(np.nan),
    "joined_seconds": np.float64(np.nan),
    "incarnation": np.int64(0),
    "headroom": np.bool_(False),
    "digest": np.int32(0),
    "named": np.bool_(False),
}


class Columns:
    """Rows as in `engine.snapshot.Fleet`; `need` numbers the need that a machine is for,
    `incarnation` distinguishes a machine's bindings, and `joined_seconds` is when a CONFIGURED
    machine joined its cluster, NaN if unknown. `digest` is that of the provider's record which was
    applied last, 0 if unknown; `named` is whether a listing has named the machine since the last
    full one began.

    A new row is in state 0, which no machine is ever in.
    """

    flavour: Ints
    state: Bytes
    cluster: Ints
    need: Ints
    priority: Ints
    interruption_bucket: Bytes
    reclamation_bucket: Bytes
    unused_since_seconds: Floats
    joined_seconds: Floats
    incarnation: Ints
    headroom: Flags
    digest: Ints
    named: Flags

    def __init__(self) -> None:
        for name, initial in _INITIAL.items():
            setattr(self, name, np.empty(0, initial.dtype))

    def grow(self, count: int) -> None:
        """Append `count` rows."""
        for name, initial in _INITIAL.items():
            added = np.full(count, initial, initial.dtype)
            setattr(self, name, np.concatenate([getattr(self, name), added]))

    def copies(self, rows: Ints | slice) -> dict[str, Any]:
        """Copies of the columns that a Fleet has under the same name, for `rows`."""
        kept = _INITIAL.keys() - {"need", "incarnation", "joined_seconds", "digest", "named"}
        return {name: getattr(self, name)[rows].copy() for name in kept}

    def have_digest(self, rows: Ints, digests: Ints) -> Flags:
        """Which of `rows` had a record with this digest last; none of unknown machines (NONE), and
        none with 0, which says nothing.
        """
        same, known = np.zeros(len(rows), np.bool_), np.flatnonzero(rows != NONE)
        given = digests[known]
        same[known] = (given != 0) & (self.digest[rows[known]] == given)
        return same

    def keep(self, rows: Flags) -> None:
        """Drop the rows that are False."""
        for name in _INITIAL:
            setattr(self, name, getattr(self, name)[rows])

    def free_by_flavour(self, rows: Flags) -> Iterator[tuple[int, int, int]]:
        """The numbers of idle and of speculative machines among `rows`, for each flavour with any:
        its number, then these.
        """
        idle = np.bincount(self.flavour[rows & (self.state == MachineState.IDLE)])
        speculative = np.bincount(self.flavour[rows & (self.state == MachineState.SPECULATIVE)])
        most = max(len(idle), len(speculative))
        idle.resize(most)
        speculative.resize(most)
        for number in np.flatnonzero(idle + speculative).tolist():
            yield number, int(idle[number]), int(speculative[number])
