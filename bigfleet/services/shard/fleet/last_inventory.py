"""What an earlier process of this shard knew of each machine, so that a restart reads only what has
changed since.

It is consulted while the first listing is read: a machine whose record has the digest that it had
then is adopted as it was. So it may be old, and losing it costs time only.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.snapshot import NONE, Flags, Ints
from bigfleet.model.errors import BigFleetError
from bigfleet.model.need import NeedKey
from bigfleet.observe import metrics
from bigfleet.ports.store import InventoryStore
from bigfleet.services.shard.fleet.columns import Columns
from bigfleet.services.shard.fleet.machine_ids import MachineIds
from bigfleet.services.shard.records.machine_class import MachineClass
from bigfleet.services.shard.records.wants import Wants

# To be raised when a record is read differently: by the codec, `class_of` or `claims`.
FORMAT = 1
#: of a machine that is as it was; times are of another clock, and headroom is found anew
SAVED_COLUMNS = (
    "flavour",
    "state",
    "cluster",
    "need",
    "priority",
    "interruption_bucket",
    "reclamation_bucket",
    "incarnation",
    "digest",
)
_COMPRESSION = 1
# What has changed since is read again after a restart.
SAVE_INTERVAL_SECONDS = 300.0

_LOG = logging.getLogger(__name__)


class _Header(msgspec.Struct):
    format: int


class Content(_Header):
    """What a file holds, uncompressed: a copy, safe from later changes."""

    ids: bytes
    id_bytes: int
    columns: dict[str, bytes]
    classes: list[MachineClass]
    clusters: list[str]
    needs: list[NeedKey]
    last_errors: dict[str, str]


# Made once, by one thread: see `replay.checkpoint`.
_HEADER_DECODER = msgspec.msgpack.Decoder(_Header)
_CONTENT_DECODER = msgspec.msgpack.Decoder(Content)


@dataclass(frozen=True)
class LastInventory:
    """Machines by row. `flavour`, `cluster` and `need` in `columns` number `classes`, `clusters`
    and `needs`.
    """

    ids: MachineIds
    columns: Columns
    classes: Sequence[MachineClass]
    clusters: Sequence[str]
    needs: Sequence[NeedKey]
    last_errors: Mapping[str, str]

    def unchanged(self, ids: Sequence[str], digests: Ints, provider: str) -> Flags:
        """Which of the machines `ids` of `provider` had a record with this digest."""
        rows = self.ids.rows(ids)
        same = self.columns.have_digest(rows, digests)
        same[same] = self._providers[self.columns.flavour[rows[same]]] == provider
        return same

    @cached_property
    def _providers(self) -> NDArray[np.str_]:
        """The provider of each class."""
        return np.array([each.provider for each in self.classes], np.str_)

    def restore(
        self,
        into: Columns,
        at: Ints,
        ids: Sequence[str],
        flavour: Callable[[MachineClass], int],
        cluster: Callable[[str], int],
        need: Callable[[NeedKey], int],
    ) -> None:
        """Write the known machines `ids` into the rows `at`; the functions number classes, clusters
        and needs there.
        """
        rows = self.ids.rows(ids)
        for name in SAVED_COLUMNS:
            getattr(into, name)[at] = getattr(self.columns, name)[rows]
        into.flavour[at] = _renumbered(into.flavour[at], lambda n: flavour(self.classes[n]))
        into.cluster[at] = _renumbered(into.cluster[at], lambda n: cluster(self.clusters[n]))
        into.need[at] = _renumbered(into.need[at], lambda n: need(self.needs[n]))


def _renumbered(numbers: Ints, number: Callable[[int], int]) -> Ints:
    used, places = np.unique(numbers, return_inverse=True)
    renumbered = [NONE if each == NONE else number(each) for each in used.tolist()]
    found: Ints = np.array(renumbered, np.int32)[places]
    return found


def content_of(last: LastInventory) -> Content:
    """What `last` knows now."""
    ids = np.array(last.ids.raw_of(slice(None)), np.bytes_)
    # Needs that no machine serves are not for the file.
    needs = Wants(last.columns.need, last.needs).compact()
    columns = {name: getattr(last.columns, name).tobytes() for name in SAVED_COLUMNS}
    return Content(
        format=FORMAT,
        ids=ids.tobytes(),
        id_bytes=ids.itemsize,
        columns=columns | {"need": needs.numbers.tobytes()},
        classes=[*last.classes],
        clusters=[*last.clusters],
        needs=[*needs.keys],
        last_errors={**last.last_errors},
    )


def encode(content: Content) -> bytes:
    """The bytes of a file; `decode` is the inverse."""
    return gzip.compress(msgspec.msgpack.encode(content), _COMPRESSION, mtime=0)


def decode(content: bytes) -> LastInventory | None:
    """None, with a warning, for what is damaged or was written by a release of another format."""
    try:
        raw = gzip.decompress(content)
        if _HEADER_DECODER.decode(raw).format != FORMAT:
            _LOG.info("all machines are read again: an earlier release had another format")
            return None
        return _read(_CONTENT_DECODER.decode(raw))
    except (OSError, EOFError, zlib.error, msgspec.DecodeError, KeyError, ValueError) as error:
        _LOG.warning("all machines are read again: the file is damaged", extra={"error": error})
        return None


def _read(read: Content) -> LastInventory:
    ids, columns = MachineIds(), Columns()
    known: Any = np.frombuffer(read.ids, f"S{max(1, read.id_bytes)}")
    ids.add_encoded(known)
    columns.grow(len(known))
    for name in SAVED_COLUMNS:
        values: Any = getattr(columns, name)
        values[:] = np.frombuffer(read.columns[name], values.dtype)
    return LastInventory(ids, columns, read.classes, read.clusters, read.needs, read.last_errors)


class _Inventory(Protocol):
    last: LastInventory | None

    def content(self) -> Content: ...


class InventorySaver:
    """Fills `inventory.last` from `store` at once. `all_listed` is set when all providers have been
    listed since.
    """

    def __init__(
        self, store: InventoryStore, inventory: _Inventory, all_listed: asyncio.Event
    ) -> None:
        self._store, self._inventory, self._all_listed = store, inventory, all_listed
        try:
            content = store.load()
        except BigFleetError as error:
            _LOG.warning("all machines are read again", extra={"error": str(error)})
            content = None
        inventory.last = None if content is None else decode(content)

    async def run(self) -> None:
        """Save after the first listings and from then on regularly, until cancelled."""
        await self._all_listed.wait()
        self._inventory.last = None
        while True:
            content = self._inventory.content()
            try:
                await asyncio.to_thread(self._save, content)
            except BigFleetError as error:
                _LOG.warning("the inventory is not saved", extra={"error": str(error)})
            except Exception:  # noqa: BLE001 - the shard does without
                metrics.internal_errors.inc()
                _LOG.exception("the inventory is not saved")
            await asyncio.sleep(SAVE_INTERVAL_SECONDS)

    def _save(self, content: Content) -> None:
        self._store.save(encode(content))
