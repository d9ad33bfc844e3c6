"""The records of all machines, kept in ConfigMaps of the management cluster.

A ConfigMap is written only over the version that was read. So a second process of this provider,
or one that was believed dead, can overwrite nothing: its write fails, and it reads anew.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from bigfleet.kube.client import (
    CONFLICT,
    CONNECTION_ERRORS,
    GONE,
    NOT_FOUND,
    ApiError,
    KubeClient,
    is_transient,
)
from bigfleet.kube.types import ObjectList
from bigfleet.model.errors import BigFleetError, InvalidInput, Unavailable
from bigfleet.model.machine import MachineState
from bigfleet.ports.provider import EPOCHS_SKIPPED, Fence
from bigfleet.services.provider.capi import saved as codec
from bigfleet.services.provider.capi.catalog import Catalog
from bigfleet.services.provider.capi.objects import PROVIDER_LABEL, explain
from bigfleet.services.provider.capi.saved import ConfigMap, Epochs, Saved
from bigfleet.services.provider.fencing import FencingToken
from bigfleet.services.provider.lifecycle import Record
from bigfleet.services.provider.record_index import IndexedRecords, RecordIndex

_PAGE = 500
_AT_REST = (MachineState.SPECULATIVE, MachineState.IDLE)


class Changed(BigFleetError):
    """Somebody else has written the record; it was read anew."""


class _PageMeta(msgspec.Struct):
    continue_: str = msgspec.field(name="continue", default="")


class _Page(ObjectList[ConfigMap]):
    metadata: _PageMeta = msgspec.field(default_factory=_PageMeta)


class Records(IndexedRecords):
    """Machine records and fencing tokens: durable before `save` returns."""

    def __init__(
        self, client: KubeClient, namespace: str, provider_name: str, catalog: Catalog
    ) -> None:
        self.id = secrets.token_hex(8)  # revisions are this process's
        self._client, self._name, self._catalog = client, provider_name, catalog
        self._path = f"/api/v1/namespaces/{namespace}/configmaps"
        self._fences: dict[str, Mapping[str, FencingToken]] = {}
        self._versions: dict[str, str] = {}
        self._epochs = Epochs({})
        self._uncertain: set[str] = set()
        self._index = RecordIndex([])

    async def load(self) -> None:
        """Read all. InvalidInput if one is unusable, if a machine in use is no longer offered, or
        if the management cluster forbids it; Unavailable if it does not answer.
        """
        records = {machine.id: Record(machine) for machine in self._catalog.machines}
        for found in await self._list():
            if found.metadata.name == codec.name_of_epochs(self._name):
                self._epochs = codec.epochs_in(found)
                continue
            machine = self._catalog.machine(codec.machine_in(found))
            at_rest = codec.state_in(found) in _AT_REST
            if machine is not None and (machine.id in records or not at_rest):
                saved = codec.from_config_map(found, machine)
                records[machine.id] = saved.record
                self._keep(saved)
            elif not at_rest:
                hint = "is in use and has no offering; offer it until it is idle"
                raise InvalidInput("offerings", codec.machine_in(found), hint)
        for record in records.values():
            self._index.put(record)

    def _keep(self, saved: Saved) -> None:
        machine_id = saved.record.machine.id
        self._fences[machine_id] = saved.fences
        self._versions[machine_id] = saved.resource_version

    async def _list(self) -> list[ConfigMap]:
        query = {"labelSelector": f"{PROVIDER_LABEL}={self._name}", "limit": str(_PAGE)}
        found: list[ConfigMap] = []
        while True:
            try:
                page = msgspec.json.decode(await self._client.get(self._path, query), type=_Page)
            except (ApiError, *CONNECTION_ERRORS) as error:
                told = _told(error, "read the records of machines")
                expired = isinstance(error, ApiError) and error.status == GONE
                if expired or is_transient(error):
                    raise Unavailable(told) from None
                raise InvalidInput("access to the management cluster", self._path, told) from None
            found += page.items
            if not page.metadata.continue_:
                return found
            query["continue"] = page.metadata.continue_

    def fencing_token(self, shard_id: str, machine_id: str) -> FencingToken | None:
        """The newest token that this shard has used for this machine."""
        return self._fences.get(machine_id, {}).get(shard_id)

    def claimed_epoch(self, shard_id: str) -> int:
        """The epoch that this shard claimed last; 0 when it never claimed one."""
        return self._epochs.claimed.get(shard_id, 0)

    async def save(self, record: Record, fence: Fence | None = None) -> Record:
        """Save the record, the fencing token of its order, or both at once; the saved record.

        Changed if somebody else has written it. Unavailable if the management cluster does not
        answer or rejects it: it may have been saved all the same, so `confirm` must follow.
        """
        machine_id = record.machine.id
        fences = dict(self._fences.get(machine_id, {}))
        if fence:
            fences[fence.shard_id] = FencingToken(fence.epoch, fence.sequence)
        saved = Saved(record, fences, self._versions.get(machine_id, ""))
        try:
            version = await self._write(codec.to_config_map(saved, self._name))
        except (Unavailable, asyncio.CancelledError):  # also if the caller has gone meanwhile
            self._uncertain.add(machine_id)
            raise
        if version is None:
            await self.read(machine_id)
            raise Changed(f"the record of machine {machine_id} was changed by somebody else")
        if record is not self._index.get(machine_id):
            record = self._index.put(record)
        self._keep(Saved(record, fences, version))
        return record

    async def _write(self, wanted: Mapping[str, Any]) -> str | None:
        """The version that was written; None if it was not the one that is there."""
        name, replaced = wanted["metadata"]["name"], "resourceVersion" in wanted["metadata"]
        try:
            if replaced:
                body = await self._client.replace(f"{self._path}/{name}", wanted)
            else:
                body = await self._client.create(self._path, wanted)
        except (ApiError, *CONNECTION_ERRORS) as error:
            if isinstance(error, ApiError) and error.status in (CONFLICT, NOT_FOUND):
                return None
            raise Unavailable(_told(error, f"write ConfigMap {name}")) from None
        return msgspec.json.decode(body, type=ConfigMap).metadata.resource_version

    async def confirm(self, machine_id: str) -> None:
        """Read the record if its last write was not answered. Unavailable as in `read`."""
        if machine_id in self._uncertain:
            await self.read(machine_id)

    async def read(self, machine_id: str) -> None:
        """Read the machine's record anew; one that was deleted by hand is as this process knows it.

        Unavailable if the management cluster does not answer.
        """
        found = await self._get(codec.name_of(self._name, machine_id))
        if found is None:
            self._versions.pop(machine_id, None)
        else:
            saved = codec.from_config_map(found, self._index.get(machine_id).machine)
            self._keep(saved)
            self._index.put(saved.record)
        self._uncertain.discard(machine_id)

    async def _get(self, name: str) -> ConfigMap | None:
        try:
            body = await self._client.get(f"{self._path}/{name}")
        except (ApiError, *CONNECTION_ERRORS) as error:
            if isinstance(error, ApiError) and error.status == NOT_FOUND:
                return None
            raise Unavailable(_told(error, f"read ConfigMap {name}")) from None
        return msgspec.json.decode(body, type=ConfigMap)

    async def claim_epoch(self, shard_id: str, at_least: int) -> int:
        """A new, durable epoch for this shard, far above any that it has used or claimed.

        Unavailable if the management cluster does not answer, or somebody else wrote meanwhile.
        """
        used = [each[shard_id].epoch for each in self._fences.values() if shard_id in each]
        newest = max([*used, self.claimed_epoch(shard_id)])
        epoch = max(newest + EPOCHS_SKIPPED if newest else 1, at_least)
        epochs = replace(self._epochs, claimed={**self._epochs.claimed, shard_id: epoch})
        version = await self._write(codec.epochs_to_config_map(epochs, self._name))
        if version is None:
            found = await self._get(codec.name_of_epochs(self._name))
            self._epochs = codec.epochs_in(found) if found else replace(epochs, resource_version="")
            raise Unavailable("the claimed epochs were changed by somebody else; ask again")
        self._epochs = replace(epochs, resource_version=version)
        return epoch


def _told(error: Exception, doing: str) -> str:
    if isinstance(error, ApiError):
        return explain(error, doing)
    return f"cannot {doing}: {str(error) or repr(error)}"
