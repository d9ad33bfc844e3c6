"""Where an API server keeps objects of each kind, as it says itself."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec

from bigfleet.kube.client import ApiError, KubeClient
from loaddriver.profile.hints import did_you_mean
from tests.scenarios import objects

# What comes and goes by itself, or says nothing of what a scenario left behind.
_TRANSIENT_KINDS = frozenset({"Event", "Lease", "ComponentStatus"})


class UnknownKind(Exception):
    """The API server serves no objects of this kind."""


@dataclass(frozen=True)
class _Kind:
    root: str
    plural: str
    namespaced: bool
    listable: bool


class Resources:
    """All kinds that one API server serves, each at the version that it prefers."""

    def __init__(self, client: KubeClient, kinds: dict[str, _Kind]) -> None:
        self._client, self._kinds = client, kinds

    @classmethod
    async def of(cls, client: KubeClient) -> Resources:
        """Ask the API server."""
        groups = (await _get(client, "/apis"))["groups"]
        versions = [f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups]
        roots = ["/api/v1", *versions]
        answers = await asyncio.gather(*(_get(client, root) for root in roots))
        kinds: dict[str, _Kind] = {}
        for root, answer in zip(roots, answers, strict=True):
            for each in answer["resources"]:
                if "/" not in each["name"]:
                    listable = {"list", "delete"} <= set(each["verbs"])
                    kind = _Kind(root, each["name"], each["namespaced"], listable)
                    kinds.setdefault(each["kind"], kind)
        return cls(client, kinds)

    def path(self, kind: str, namespace: str, name: str = "") -> str:
        """Where the object is, or without a name the collection. UnknownKind."""
        if kind not in self._kinds:
            raise UnknownKind(f"no kind {kind}{did_you_mean(kind, self._kinds)}")
        known = self._kinds[kind]
        within = f"/namespaces/{namespace}" if known.namespaced and namespace else ""
        return f"{known.root}{within}/{known.plural}" + (f"/{name}" if name else "")

    def path_of(self, reference: str) -> str:
        """Where the object is that a scenario names so."""
        return self.path(*objects.parts(reference))

    async def everything(self) -> set[str]:
        """All objects, as references, but for those that come and go by themselves."""
        kinds = [
            k for k, known in self._kinds.items() if known.listable and k not in _TRANSIENT_KINDS
        ]
        listed = await asyncio.gather(*(self._names(kind) for kind in kinds))
        return {name for names in listed for name in names}

    async def _names(self, kind: str) -> list[str]:
        try:
            items = (await _get(self._client, self.path(kind, "")))["items"] or ()
        except ApiError:
            return []  # a kind whose server is not there has no objects either
        return [
            f"{kind}/{each['metadata'].get('namespace', '')}/{each['metadata']['name']}"
            for each in items
        ]


async def _get(client: KubeClient, path: str) -> Any:
    return msgspec.json.decode(await client.get(path))
