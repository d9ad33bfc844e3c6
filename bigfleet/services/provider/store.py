"""The provider's store: every machine on disk, with a copy in memory for reads.

SQLite in WAL mode with synchronous=NORMAL: commits survive a crash of the process at any instant,
as the provider contract requires. Only a power failure could lose the last commits, and it would
end these machines' clusters as well; synchronous=FULL would block the event loop for a disk flush
at every order.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bigfleet.model.errors import InvalidInput, Unavailable
from bigfleet.model.machine import Machine
from bigfleet.ports.provider import EPOCHS_SKIPPED, Fence
from bigfleet.services.provider import schema
from bigfleet.services.provider.fencing import FencingToken
from bigfleet.services.provider.lifecycle import Record
from bigfleet.services.provider.record_index import IndexedRecords, RecordIndex

FILE_NAME = "machines.sqlite"
# A checkpoint flushes the disk, some 20 ms: once in 2,000 changes, not in 500 as by default.
_CHECKPOINT_PAGES = 4000


class Store(IndexedRecords):
    """Machines, their operations and fencing tokens, in one directory, for one process."""

    def __init__(self, directory: Path) -> None:
        """Open or create the store. InvalidInput if it is in use, damaged or of another format."""
        self._path = directory / FILE_NAME
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)  # it contains join tokens
            self._database = sqlite3.connect(self._path, timeout=0, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise InvalidInput(
                "state_directory", str(directory), f"cannot be used: {error}"
            ) from None
        try:
            self._prepare()
            self.id: str = self._database.execute("SELECT store_id FROM about").fetchone()[0]
            self._read_machines()
        except sqlite3.Error as error:
            self._database.close()
            raise InvalidInput("state_directory", str(directory), _explain(error)) from None
        except InvalidInput:
            self._database.close()
            raise

    def _prepare(self) -> None:
        self._database.row_factory = sqlite3.Row
        self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")
        self._database.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        with self._transaction():
            version = self._database.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                self._run(schema.TABLES)
                self._database.execute("INSERT INTO about VALUES (?)", (secrets.token_hex(8),))
            else:
                self._migrate(version)
            self._database.execute(f"PRAGMA user_version = {schema.VERSION}")

    def _migrate(self, version: int) -> None:
        for old in range(version, schema.VERSION):
            if old in schema.MIGRATIONS:
                self._run(schema.MIGRATIONS[old])
                version = old + 1
        if version != schema.VERSION:
            hint = f"was written by another release (format {version}, not {schema.VERSION})"
            raise InvalidInput("state_directory", str(self._path.parent), hint)

    def _run(self, statements: str) -> None:
        for statement in statements.split(";"):
            self._database.execute(statement)

    def _read_machines(self) -> None:
        self._index = RecordIndex(self._load())

    def _load(self) -> Iterator[Record]:
        specs = {
            row["number"]: schema.spec_from_blob(row["description"])
            for row in self._database.execute("SELECT number, description FROM kinds")
        }
        for row in self._database.execute(schema.SELECT_MACHINES):
            yield schema.record_from_row(row, specs)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:  # a full disk may have ended it already
                self._database.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Release the directory; saved records are already durable."""
        self._database.close()

    def fencing_token(self, shard_id: str, machine_id: str) -> FencingToken | None:
        """The newest token that this shard has used for this machine."""
        row = self._database.execute(schema.SELECT_FENCE, (shard_id, machine_id)).fetchone()
        return None if row is None else FencingToken(row["epoch"], row["sequence"])

    def claimed_epoch(self, shard_id: str) -> int:
        """The epoch that this shard claimed last; 0 when it never claimed one."""
        row = self._database.execute(schema.SELECT_EPOCH, (shard_id,)).fetchone()
        return 0 if row is None else int(row["epoch"])

    def claim_epoch(self, shard_id: str, at_least: int) -> int:
        """A new, durable epoch for this shard, far above any that it has used or claimed.

        Unavailable when the disk rejects the write.
        """
        try:
            with self._transaction():
                found = self._database.execute(schema.SELECT_NEWEST_EPOCH, {"shard": shard_id})
                newest = int(found.fetchone()["epoch"] or 0)
                epoch = max(newest + EPOCHS_SKIPPED if newest else 1, at_least)
                self._database.execute(schema.UPSERT_EPOCH, (shard_id, epoch))
        except sqlite3.Error as error:
            raise Unavailable(f"{self._path} cannot be written: {error}") from None
        return epoch

    def seed(self, machines: Iterable[Machine]) -> None:
        """Insert the initial machines into an empty store: all of them or, on any error, none.

        Unavailable when the disk rejects the write.
        """
        try:
            with self._transaction():
                self._insert(machines)
        except sqlite3.Error as error:
            raise Unavailable(f"{self._path} cannot be written: {error}") from None
        self._read_machines()

    def _insert(self, machines: Iterable[Machine]) -> None:
        specs: dict[bytes, int] = {}
        for revision, machine in enumerate(machines, start=1):
            spec = self._spec_number(specs, schema.spec_to_blob(machine))
            row = (machine.id, spec, *schema.status_columns(Record(machine, revision=revision)))
            self._database.execute(schema.INSERT_MACHINE, row)

    def _spec_number(self, known: dict[bytes, int], description: bytes) -> int:
        if description not in known:
            known[description] = len(known) + 1
            row = (known[description], description)
            self._database.execute("INSERT INTO kinds VALUES (?, ?)", row)
        return known[description]

    def save(self, record: Record | None, fence: Fence | None = None, machine_id: str = "") -> None:
        """Save a machine's record, the fencing token of its order, or both in one transaction.

        With only a fence, `machine_id` names the machine. Unavailable when the disk rejects it.
        """
        try:
            with self._transaction():
                if fence:
                    subject = record.machine.id if record else machine_id
                    row = (fence.shard_id, subject, fence.epoch, fence.sequence)
                    self._database.execute(schema.UPSERT_FENCE, row)
                if record:
                    record = replace(record, revision=self.revision + 1)
                    row = (*schema.status_columns(record), record.machine.id)
                    self._database.execute(schema.UPDATE_MACHINE, row)
        except sqlite3.Error as error:
            raise Unavailable(f"{self._path} cannot be written: {error}") from None
        if record:
            self._index.put(record)


def _explain(error: sqlite3.Error) -> str:
    if "locked" in str(error):
        return "is in use by another provider; stop that one or choose another directory"
    return f"cannot be read as a provider's state: {error}"
