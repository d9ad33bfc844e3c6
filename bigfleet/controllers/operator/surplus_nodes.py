"""Keeps new pods from Nodes whose machines are surplus, while there is room on others.

kube-scheduler prefers Nodes with few pods, which are those that are released next: pods would be
bound there only to be evicted. So such a Node gets a taint with the effect PreferNoSchedule. A pod
that fits nowhere else is bound there all the same, and the machine is no longer surplus.

Which machines are surplus changes from one decision to the next. A taint therefore stays until the
shard has not named the machine for a while, also if there is no shard any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Set
from typing import Any

import msgspec

from bigfleet.api.wellknown import MACHINE_LABEL, SURPLUS_TAINT
from bigfleet.controllers.operator.node_types import Node, NodeTaint, node_path
from bigfleet.kube.client import CONFLICT, CONNECTION_ERRORS, NOT_FOUND, ApiError, KubeClient
from bigfleet.kube.types import ObjectList

_LOG = logging.getLogger(__name__)
_TAINT = NodeTaint(SURPLUS_TAINT, "", "PreferNoSchedule")
_KEPT_SECONDS, _CHECK_SECONDS = 60.0, 5.0


class _Version(msgspec.Struct, rename="camel"):
    resource_version: str


class _Taints(msgspec.Struct):
    taints: list[dict[str, Any]] = []


class _Written(msgspec.Struct):
    """What is written back: the taints with all their fields."""

    metadata: _Version
    spec: _Taints


class NamedMachines:
    """The machines that were named within the last minute. `now` is in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._until: dict[str, float] = {}

    def name(self, machine_ids: Iterable[str]) -> None:
        """Note that these are surplus."""
        self._until.update(dict.fromkeys(machine_ids, self._now() + _KEPT_SECONDS))

    def current(self) -> Set[str]:
        """Those of the last minute."""
        now = self._now()
        self._until = {each: until for each, until in self._until.items() if until > now}
        return self._until.keys()


class SurplusNodes:
    """Taints the Nodes of surplus machines. `now` is in seconds."""

    def __init__(self, client: KubeClient, now: Callable[[], float]) -> None:
        self._client, self._named = client, NamedMachines(now)
        #: Nodes that have the taint, as far as is known
        self._tainted: set[str] = set()
        self._changed = asyncio.Event()

    def name(self, machine_ids: Iterable[str]) -> None:
        """Note the machines that the shard has just found to be surplus."""
        self._named.name(machine_ids)
        self._changed.set()

    async def load(self) -> None:
        """Find the taints of a previous operator."""
        found = await self._client.get("/api/v1/nodes", {"labelSelector": MACHINE_LABEL})
        nodes = msgspec.json.decode(found, type=ObjectList[Node]).items
        self._tainted |= {n.metadata.name for n in nodes if _TAINT in (n.spec.taints or ())}

    async def run(self) -> None:
        """Add and remove taints until cancelled."""
        while True:
            wanted = set(self._named.current())
            for name in sorted(wanted ^ self._tainted):
                await self._set(name, tainted=name in wanted)
            try:
                async with asyncio.timeout(_CHECK_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                continue
            self._changed.clear()

    async def _set(self, name: str, *, tainted: bool) -> None:
        try:
            await self._write(name, tainted=tainted)
        except (ApiError, *CONNECTION_ERRORS) as error:
            status = error.status if isinstance(error, ApiError) else None
            if status != NOT_FOUND:
                if status != CONFLICT:
                    _LOG.warning("cannot taint node %s yet: %s", name, str(error) or repr(error))
                return
            tainted = False
        if tainted:
            self._tainted.add(name)
        else:
            self._tainted.discard(name)

    async def _write(self, name: str, *, tainted: bool) -> None:
        found = await self._client.get(node_path(name))
        node = msgspec.json.decode(found, type=Node)
        if node.not_owned_reason or tainted == (_TAINT in (node.spec.taints or ())):
            return
        now = msgspec.json.decode(found, type=_Written)
        taints = [taint for taint in now.spec.taints if taint["key"] != SURPLUS_TAINT]
        if tainted:
            taints.append(msgspec.to_builtins(_TAINT))
        # The list is replaced as a whole: whoever changes it meanwhile must not be overwritten.
        version = now.metadata.resource_version
        unchanged = {"uid": node.metadata.uid, "resourceVersion": version}
        body = {"metadata": unchanged, "spec": {"taints": taints}}
        await self._client.patch(node_path(name), body)
