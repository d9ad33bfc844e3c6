"""Records to and from ConfigMaps of the management cluster. Pure.

A record cannot be an annotation of its Machine: a machine that is idle has none, and its fencing
tokens must outlive every Machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec

from bigfleet.model.errors import InvalidInput
from bigfleet.model.machine import Machine, MachineState
from bigfleet.services.provider.capi.objects import PROVIDER_LABEL
from bigfleet.services.provider.fencing import FencingToken
from bigfleet.services.provider.lifecycle import Record

_KEY = "record"
_T = TypeVar("_T")


class ConfigMapMeta(msgspec.Struct, rename="camel"):
    """Of a ConfigMap: its name, and the version that a replacement must name."""

    name: str
    resource_version: str = ""


class ConfigMap(msgspec.Struct):
    """A ConfigMap as it is read."""

    metadata: ConfigMapMeta
    data: dict[str, str] | None = None


class _Status(msgspec.Struct):
    """What changes of a machine; readable, since a person may have to."""

    machine: str
    state: str
    operations_started: int = 0
    ordered_unix_seconds: float = 0.0
    grace_ends_unix_seconds: float = 0.0
    host: str = ""
    cluster: str = ""
    last_error: str = ""
    shard_metadata: dict[str, str] = {}
    #: the largest (epoch, sequence) of each shard
    fences: dict[str, tuple[int, int]] = {}


@dataclass(frozen=True)
class Saved:
    """A record with the fencing tokens of its machine, by shard, and its ConfigMap's version."""

    record: Record
    fences: Mapping[str, FencingToken]
    #: "" while it has no ConfigMap
    resource_version: str = ""


@dataclass(frozen=True)
class Epochs:
    """The epoch that each shard has claimed last, and the version of the ConfigMap."""

    claimed: Mapping[str, int]
    resource_version: str = ""


def name_of(provider_name: str, machine_id: str) -> str:
    """The name of the machine's ConfigMap."""
    return f"bigfleet-{provider_name}-{machine_id}"


def name_of_epochs(provider_name: str) -> str:
    """The name of the ConfigMap with the epochs that shards have claimed."""
    return f"bigfleet-{provider_name}.epochs"


def to_config_map(saved: Saved, provider_name: str) -> dict[str, Any]:
    """The ConfigMap; `from_config_map` is the inverse."""
    record, machine = saved.record, saved.record.machine
    status = _Status(
        machine=machine.id,
        state=machine.state.name,
        operations_started=record.operations_started,
        ordered_unix_seconds=record.due_unix_seconds,
        grace_ends_unix_seconds=record.grace_ends_unix_seconds,
        host=machine.host,
        cluster=machine.cluster,
        last_error=machine.last_error,
        shard_metadata=dict(machine.shard_metadata),
        fences={shard: (token.epoch, token.sequence) for shard, token in saved.fences.items()},
    )
    name = name_of(provider_name, machine.id)
    return _config_map(name, provider_name, status, saved.resource_version)


def epochs_to_config_map(epochs: Epochs, provider_name: str) -> dict[str, Any]:
    """The ConfigMap; `epochs_in` is the inverse."""
    name = name_of_epochs(provider_name)
    return _config_map(name, provider_name, epochs.claimed, epochs.resource_version)


def epochs_in(found: ConfigMap) -> Epochs:
    """The claimed epochs in a ConfigMap; InvalidInput if there are none."""
    return Epochs(_decoded(found, dict[str, int]), found.metadata.resource_version)


def _config_map(
    name: str, provider_name: str, content: Any, resource_version: str
) -> dict[str, Any]:
    """It replaces the one of `resource_version`, or is new if that is ""."""
    metadata: dict[str, Any] = {"name": name, "labels": {PROVIDER_LABEL: provider_name}}
    if resource_version:
        metadata["resourceVersion"] = resource_version
    data = {_KEY: msgspec.json.encode(content).decode()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def machine_in(found: ConfigMap) -> str:
    """The id of the machine whose record it is; InvalidInput if it is none."""
    return _decoded(found, _Status).machine


def state_in(found: ConfigMap) -> MachineState:
    """The state of the machine whose record it is; InvalidInput if it is none."""
    state = _decoded(found, _Status).state
    try:
        return MachineState[state]
    except KeyError:
        raise InvalidInput(_where(found), state, "is not a state of a machine") from None


def from_config_map(found: ConfigMap, machine: Machine) -> Saved:
    """The record in a ConfigMap, where `machine` has what does not change; InvalidInput if it is
    not a record.
    """
    status, state = _decoded(found, _Status), state_in(found)
    record = Record(
        replace(
            machine,
            state=state,
            host=status.host,
            cluster=status.cluster,
            last_error=status.last_error,
            shard_metadata=status.shard_metadata,
        ),
        operations_started=status.operations_started,
        due_unix_seconds=status.ordered_unix_seconds,
        grace_ends_unix_seconds=status.grace_ends_unix_seconds,
    )
    fences = {shard: FencingToken(*token) for shard, token in status.fences.items()}
    return Saved(record, fences, found.metadata.resource_version)


def _where(found: ConfigMap) -> str:
    return f"ConfigMap {found.metadata.name}"


def _decoded(found: ConfigMap, kind: type[_T]) -> _T:
    text = (found.data or {}).get(_KEY, "")
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        raise InvalidInput(_where(found), text, f"is not this provider's: {error}") from None
