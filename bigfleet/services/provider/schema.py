"""SQLite schema: one row per distinct machine spec, one row per machine with its status."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

import msgspec

from bigfleet.model.machine import CapacityType, Machine, MachineState
from bigfleet.model.need import Taint
from bigfleet.services.provider.lifecycle import Record

VERSION = 3
_EPOCHS = """
CREATE TABLE epochs (shard_id TEXT PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID
"""
# Statements that migrate a store of an earlier version to the next one.
MIGRATIONS: Mapping[int, str] = {
    1: "",  # specs gained taints; a missing value means none
    2: _EPOCHS,
}

TABLES = f"""
CREATE TABLE about (store_id TEXT NOT NULL);
CREATE TABLE kinds (number INTEGER PRIMARY KEY, description BLOB NOT NULL UNIQUE);
CREATE TABLE machines (
  id TEXT PRIMARY KEY,
  kind INTEGER NOT NULL REFERENCES kinds,
  state INTEGER NOT NULL,
  host TEXT NOT NULL,
  cluster TEXT NOT NULL,
  last_error TEXT NOT NULL,
  shard_metadata BLOB NOT NULL,
  operations_started INTEGER NOT NULL,
  due_unix_seconds REAL NOT NULL,
  grace_ends_unix_seconds REAL NOT NULL,
  bootstrap_blob BLOB NOT NULL,
  revision INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE fences (
  shard_id TEXT NOT NULL,
  machine_id TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  sequence INTEGER NOT NULL,
  PRIMARY KEY (shard_id, machine_id)
) WITHOUT ROWID;
{_EPOCHS}"""

INSERT_MACHINE = "INSERT INTO machines VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
UPDATE_MACHINE = """
UPDATE machines SET state = ?, host = ?, cluster = ?, last_error = ?, shard_metadata = ?,
  operations_started = ?, due_unix_seconds = ?, grace_ends_unix_seconds = ?, bootstrap_blob = ?,
  revision = ?
WHERE id = ?
"""
SELECT_MACHINES = "SELECT * FROM machines ORDER BY revision"
UPSERT_FENCE = "INSERT OR REPLACE INTO fences VALUES (?, ?, ?, ?)"
SELECT_EPOCH = "SELECT epoch FROM epochs WHERE shard_id = ?"
SELECT_NEWEST_EPOCH = """
SELECT max(epoch) AS epoch FROM (
  SELECT max(epoch) AS epoch FROM fences WHERE shard_id = :shard
  UNION ALL SELECT epoch FROM epochs WHERE shard_id = :shard
)
"""
UPSERT_EPOCH = "INSERT OR REPLACE INTO epochs VALUES (?, ?)"
SELECT_FENCE = "SELECT epoch, sequence FROM fences WHERE shard_id = ? AND machine_id = ?"


class MachineSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The immutable part of a machine. Machines with equal specs share one row and its mappings."""

    instance_type: str
    zone: str
    capacity_type: CapacityType
    price_per_hour: float
    interruption_probability: float
    resources: Mapping[str, int]
    allocatable: Mapping[str, int]
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()


_ENCODER = msgspec.json.Encoder(order="sorted")
_METADATA: msgspec.json.Decoder[dict[str, str]] = msgspec.json.Decoder(dict[str, str])


def spec_to_blob(machine: Machine) -> bytes:
    """The encoded MachineSpec of `machine`; equal specs give equal bytes."""
    fields = {name: getattr(machine, name) for name in MachineSpec.__struct_fields__}
    return _ENCODER.encode(MachineSpec(**fields))


def spec_from_blob(blob: bytes) -> MachineSpec:
    """The MachineSpec that `spec_to_blob` encoded."""
    return msgspec.json.decode(blob, type=MachineSpec)


def status_columns(record: Record) -> tuple[Any, ...]:
    """All mutable columns, in the order of UPDATE_MACHINE."""
    machine = record.machine
    return (
        int(machine.state),
        machine.host,
        machine.cluster,
        machine.last_error,
        _ENCODER.encode(machine.shard_metadata),
        record.operations_started,
        record.due_unix_seconds,
        record.grace_ends_unix_seconds,
        record.bootstrap_blob,
        record.revision,
    )


def record_from_row(row: sqlite3.Row, specs: Mapping[int, MachineSpec]) -> Record:
    """The Record in a row of SELECT_MACHINES."""
    machine = Machine(
        id=row["id"],
        state=MachineState(row["state"]),
        host=row["host"],
        cluster=row["cluster"],
        last_error=row["last_error"],
        shard_metadata=_METADATA.decode(row["shard_metadata"]),
        **msgspec.structs.asdict(specs[row["kind"]]),
    )
    return Record(
        machine,
        operations_started=row["operations_started"],
        due_unix_seconds=row["due_unix_seconds"],
        grace_ends_unix_seconds=row["grace_ends_unix_seconds"],
        bootstrap_blob=row["bootstrap_blob"],
        revision=row["revision"],
    )
