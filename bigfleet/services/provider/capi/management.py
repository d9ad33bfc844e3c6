"""What the provider does in the management cluster. Every method may be called again after a crash,
and then finds what an interrupted earlier call has made.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Mapping
from typing import Any, NoReturn, TypeVar

import msgspec

from bigfleet.kube.client import (
    CONFLICT,
    CONNECTION_ERRORS,
    NOT_FOUND,
    ApiError,
    KubeClient,
    is_transient,
)
from bigfleet.model.errors import InvalidInput, Unavailable
from bigfleet.ports.host import HostFailure
from bigfleet.services.provider.capi import objects
from bigfleet.services.provider.capi.catalog import ClusterEntry, Offering, TemplateRef
from bigfleet.services.provider.capi.objects import Owned, explain
from bigfleet.services.provider.capi.placeholders import facts_of, filled
from bigfleet.services.provider.lifecycle import Record

_T = TypeVar("_T")


class _Secret(msgspec.Struct):
    data: dict[str, str] | None = None


class ManagementCluster:
    """Creates and deletes what stands for machines, in one namespace.

    HostFailure says in words why something cannot succeed; Unavailable, why it may succeed later.
    """

    def __init__(self, client: KubeClient, namespace: str, provider_name: str) -> None:
        self.client, self.namespace, self._name = client, namespace, provider_name
        self.machines = objects.machines(namespace)
        self._secrets = f"/api/v1/namespaces/{namespace}/secrets"

    async def check(self) -> None:
        """InvalidInput unless it serves Machines to this provider; Unavailable if it is silent."""
        doing = f"list Machines of {objects.GROUP}/{objects.VERSION} in {self.namespace}"
        try:
            await _words(self.client.get(self.machines, {"limit": "1"}), doing)
        except HostFailure as failure:
            what = "access to the management cluster"
            raise InvalidInput(what, self.client.server, str(failure)) from None

    async def prepare(self, record: Record, entry: ClusterEntry, blob: bytes) -> None:
        """Make the machine's bootstrap data, of which nothing is in use yet. InvalidInput if its
        template cannot be used.
        """
        facts = facts_of(record.machine, blob)
        try:
            if entry.bootstrap_template:
                path = objects.made_from(entry.bootstrap_template, self.namespace)
                made = await self._clone(entry.bootstrap_template, record, entry)
                made["spec"] = filled(made["spec"], facts, entry.bootstrap_template.name)
            else:
                path, data = self._secrets, await self._bootstrap_data(entry.bootstrap_secret)
                data = filled(data, facts, f"Secret {entry.bootstrap_secret}")
                made = objects.secret(record, self._name, entry.name, data)
            await self._replace(path, made)
        except HostFailure as failure:
            raise InvalidInput(f"cluster {entry.id}", entry.name, str(failure)) from None

    async def create(self, record: Record, offering: Offering, entry: ClusterEntry) -> None:
        """Create infrastructure and Machine, unless this operation has already."""
        infrastructure = await self._clone(offering.template, record, entry)
        path = objects.made_from(offering.template, self.namespace)
        await self._create_once(path, infrastructure, record.operation_id)
        machine = objects.machine_of(record, offering, entry, self._name)
        await self._create_once(self.machines, machine, record.operation_id)

    async def remove(
        self, record: Record, offering: Offering, entry: ClusterEntry | None, grace_seconds: float
    ) -> str:
        """Delete what there is of the machine; what is still there, "" once nothing is."""
        machine_id = record.machine.id
        timeouts = {"spec": {"deletion": objects.drain_timeouts(grace_seconds)}}
        if not await self._delete(f"{self.machines}/{machine_id}", timeouts):
            return f"Machine {machine_id} is being deleted"
        for template in (offering.template, entry.bootstrap_template if entry else None):
            if template is not None:
                path = f"{objects.made_from(template, self.namespace)}/{machine_id}"
                if not await self._delete(path):
                    return f"{template.made_kind} {machine_id} is being deleted"
        name = objects.bootstrap_secret(machine_id)
        await _absent(self.client.delete(f"{self._secrets}/{name}"), f"delete Secret {name}")
        return ""

    async def _bootstrap_data(self, name: str) -> Mapping[str, str]:
        body = await _words(self.client.get(f"{self._secrets}/{name}"), f"read Secret {name}")
        data = msgspec.json.decode(body, type=_Secret).data or {}
        if "value" not in data:
            raise HostFailure(f"Secret {name} has no key `value` with bootstrap data")
        try:
            return {key: base64.b64decode(text).decode() for key, text in data.items()}
        except UnicodeDecodeError:
            raise HostFailure(f"Secret {name} has bootstrap data that is not text") from None

    async def _clone(
        self, template: TemplateRef, record: Record, entry: ClusterEntry
    ) -> dict[str, Any]:
        path = objects.collection(self.namespace, template.api_version, template.kind)
        doing = f"read {template.kind} {template.name}"
        body = await _words(self.client.get(f"{path}/{template.name}"), doing)
        return objects.clone(msgspec.json.decode(body), template, record, self._name, entry.name)

    async def _replace(self, path: str, wanted: Mapping[str, Any]) -> None:
        """Create it anew; what an interrupted order has left of it is deleted."""
        one, doing = f"{path}/{wanted['metadata']['name']}", f"create {_named(wanted)}"
        for last in (False, True):
            try:
                await self.client.create(path, wanted)
            except (ApiError, *CONNECTION_ERRORS) as error:
                if last or not (isinstance(error, ApiError) and error.status == CONFLICT):
                    _raise(error, doing)
            else:
                return
            if path == self._secrets:  # which may not be read; nobody else uses such a name
                await _absent(self.client.delete(one), f"delete {_named(wanted)}")
            else:
                await self._delete(one)

    async def _create_once(self, path: str, wanted: Mapping[str, Any], operation_id: str) -> None:
        try:
            await self.client.create(path, wanted)
        except (ApiError, *CONNECTION_ERRORS) as error:
            if not (isinstance(error, ApiError) and error.status == CONFLICT):
                _raise(error, f"create {_named(wanted)}")
        else:
            return
        path = f"{path}/{wanted['metadata']['name']}"
        found = await self._owned(path)
        if found is None or found.operation_id == operation_id:
            return
        await self._delete(path)
        raise Unavailable(f"{_named(wanted)} of an earlier operation is still there")

    async def _owned(self, path: str) -> Owned | None:
        """The object if there is one; HostFailure if it is not this provider's."""
        body = await _absent(self.client.get(path), f"read {path}")
        found = msgspec.json.decode(body, type=Owned) if body else None
        if found is not None and not found.is_of(self._name):
            raise HostFailure(f"{path} exists, and is not of provider {self._name}")
        return found

    async def _delete(self, path: str, patch: Any = None) -> bool:
        """Delete this provider's object, after a merge patch; whether there is none any more."""
        found = await self._owned(path)
        if found is None:
            return True
        if patch is not None:
            await _absent(self.client.patch(path, patch), f"patch {path}")
        options = {"preconditions": {"uid": found.metadata.uid}}
        if not found.leaving:
            await _absent(self.client.delete(path, options), f"delete {path}")
        return await self._owned(path) is None


def _named(wanted: Mapping[str, Any]) -> str:
    return f"{wanted['kind']} {wanted['metadata']['name']}"


async def _words(call: Awaitable[_T], doing: str) -> _T:
    """The answer; HostFailure or Unavailable in words."""
    try:
        return await call
    except (ApiError, *CONNECTION_ERRORS) as error:
        _raise(error, doing)


async def _absent(call: Awaitable[_T], doing: str) -> _T | None:
    """The answer; None if the object does not exist."""
    try:
        return await call
    except (ApiError, *CONNECTION_ERRORS) as error:
        if isinstance(error, ApiError) and error.status == NOT_FOUND:
            return None
        _raise(error, doing)


def _raise(error: Exception, doing: str) -> NoReturn:
    if not isinstance(error, ApiError):
        raise Unavailable(f"cannot {doing}: {str(error) or repr(error)}") from None
    again = is_transient(error) or error.status in (CONFLICT, objects.UNAUTHORIZED)
    raise (Unavailable if again else HostFailure)(explain(error, doing)) from None
