"""Checkpoints: everything that a decision depends on, as bytes that another process can read.

A checkpoint has the inputs of one cycle and the engine's settings. Columns are stored by name and
needs as on the wire, so that another release can read it as long as its columns are the same.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from bigfleet.api import need_codec
from bigfleet.api.v1alpha1 import capacity_pb2
from bigfleet.engine.cycle_memory import CycleMemory
from bigfleet.engine.snapshot import Demand, EngineConfig, Flavour, Fleet
from bigfleet.model.ceiling import Ceiling
from bigfleet.model.errors import InvalidInput
from bigfleet.model.need import Need, NeedKey, NodeOverhead
from bigfleet.services.shard.decide.cycle_inputs import CycleInputs
from bigfleet.services.shard.records.wants import Wants

FORMAT = 1
_COMPRESSION = 1  # of a fleet of 100,000 machines a tenth remains


class _Column(msgspec.Struct, array_like=True):
    dtype: str
    data: bytes


class _NeedRow(msgspec.Struct, array_like=True):
    message: bytes
    cluster: int
    priority_ceiling: int


class _Header(msgspec.Struct):
    format: int
    shard_id: str


class _Content(_Header):
    now_seconds: float
    flavours: list[Flavour]
    clusters: list[str]
    columns: dict[str, _Column]
    machine_ids: _Column
    wanted: _Column
    wanted_by: list[NeedKey]
    needs: list[_NeedRow]
    reported: list[int]
    unreachable: list[int]
    suspended: list[int]
    ceilings: dict[int, Ceiling]
    overheads: dict[int, list[NodeOverhead]]
    rose_seconds: dict[int, float]
    fell_seconds: dict[int, float]
    memory: CycleMemory
    settings: EngineConfig


# Made once: threads that decode a type for the first time at once crash the process, because
# msgspec fills in what it knows of a type while others read it.
_HEADER_DECODER = msgspec.msgpack.Decoder(_Header)
_CONTENT_DECODER = msgspec.msgpack.Decoder(_Content)


@dataclass(frozen=True)
class Checkpoint:
    """The inputs of a decision of shard `shard_id`."""

    shard_id: str
    inputs: CycleInputs
    settings: EngineConfig


def encode(checkpoint: Checkpoint) -> bytes:
    """The checkpoint as bytes; `decode` is the inverse."""
    inputs, fleet, asked = checkpoint.inputs, checkpoint.inputs.fleet, checkpoint.inputs.asked
    needs, wants = zip(asked.needs, asked.cluster.tolist(), strict=True), inputs.wants.compact()
    content = _Content(
        format=FORMAT,
        shard_id=checkpoint.shard_id,
        now_seconds=inputs.now_seconds,
        flavours=list(fleet.flavours),
        clusters=list(fleet.clusters),
        columns={name: _column(values) for name, values in fleet.columns().items()},
        machine_ids=_column(np.array(inputs.machine_ids)),
        wanted=_column(wants.numbers),
        wanted_by=list(wants.keys),
        needs=[_need_row(need, cluster) for need, cluster in needs],
        reported=sorted(asked.reported),
        unreachable=sorted(asked.unreachable),
        suspended=sorted(asked.suspended),
        ceilings=dict(asked.ceilings),
        overheads={cluster: list(each) for cluster, each in asked.overheads.items()},
        rose_seconds=dict(asked.rose_seconds),
        fell_seconds=dict(asked.fell_seconds),
        memory=inputs.cycle_memory,
        settings=checkpoint.settings,
    )
    return gzip.compress(msgspec.msgpack.encode(content), _COMPRESSION, mtime=0)


def decode(content: bytes, name: str) -> Checkpoint:
    """The checkpoint in `content`. InvalidInput, which calls it `name`, if it is damaged, is no
    checkpoint, or was written by a release with other columns.
    """
    try:
        raw = gzip.decompress(content)
        found = _HEADER_DECODER.decode(raw).format
        if found != FORMAT:
            raise InvalidInput(
                name, found, f"is a format of another release; this one has {FORMAT}"
            )
        read = _CONTENT_DECODER.decode(raw)
        return Checkpoint(read.shard_id, _inputs(read), read.settings)
    except (OSError, EOFError, zlib.error, msgspec.DecodeError, TypeError, ValueError) as error:
        hint = "is no checkpoint that this release can read"
        raise InvalidInput(name, str(error), hint) from None


def _inputs(read: _Content) -> CycleInputs:
    columns: dict[str, Any] = {name: _values(column) for name, column in read.columns.items()}
    asked = Demand(
        needs=[_need(row, number) for number, row in enumerate(read.needs)],
        cluster=np.array([row.cluster for row in read.needs], np.int32),
        reported=frozenset(read.reported),
        unreachable=frozenset(read.unreachable),
        suspended=frozenset(read.suspended),
        ceilings=read.ceilings,
        overheads={cluster: tuple(each) for cluster, each in read.overheads.items()},
        rose_seconds=read.rose_seconds,
        fell_seconds=read.fell_seconds,
    )
    return CycleInputs(
        fleet=Fleet(flavours=read.flavours, clusters=tuple(read.clusters), **columns),
        machine_ids=_values(read.machine_ids).tolist(),
        wants=Wants(_values(read.wanted), tuple(read.wanted_by)),
        asked=asked,
        now_seconds=read.now_seconds,
        cycle_memory=read.memory,
    )


def _column(values: np.ndarray[Any, Any]) -> _Column:
    return _Column(values.dtype.str, values.tobytes())


def _values(column: _Column) -> np.ndarray[Any, Any]:
    return np.frombuffer(column.data, column.dtype).copy()


def _need_row(need: Need, cluster: int) -> _NeedRow:
    message = need_codec.need_to_wire(need).SerializeToString(deterministic=True)
    return _NeedRow(message, cluster, need.priority_ceiling)


def _need(row: _NeedRow, number: int) -> Need:
    message = capacity_pb2.CapacityNeed.FromString(row.message)
    need = need_codec.need_from_wire(message, f"need {number}")
    return replace(need, priority_ceiling=row.priority_ceiling)
