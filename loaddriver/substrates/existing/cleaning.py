"""Finding objects by their label, and removing many of them at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from bigfleet.kube.client import NOT_FOUND, ApiError, KubeClient
from bigfleet.kube.types import ObjectList
from loaddriver.substrates.existing.objects import MANAGED

_SELECTOR = {"labelSelector": "=".join(MANAGED)}
_AT_ONCE = 32


class Meta(msgspec.Struct):
    """An object's name, and what keeps it from being deleted."""

    name: str
    namespace: str = ""
    annotations: dict[str, str] = {}
    finalizers: Sequence[str] = ()


class Object(msgspec.Struct):
    """Any object."""

    metadata: Meta


async def labelled(
    client: KubeClient, collection: str, query: Mapping[str, str] = _SELECTOR
) -> list[Object]:
    """The objects of the collection that have the label, or that `query` selects."""
    found: list[Object] = msgspec.json.decode(
        await client.get(collection, query), type=ObjectList[Object]
    ).items
    return found


async def delete(
    client: KubeClient, paths: Iterable[str], options: dict[str, int] | None = None
) -> None:
    """Delete the objects at these paths; those that are gone already count as deleted."""
    await _each(paths, lambda path: client.delete(path, options))


async def release(client: KubeClient, collection: str, objects: Iterable[Object]) -> None:
    """Take off the finalizers of these objects: whoever had set them is gone."""
    held = (each.metadata for each in objects if each.metadata.finalizers)
    body: dict[str, Any] = {"metadata": {"finalizers": None}}
    await _each(
        (_path(collection, each.namespace, each.name) for each in held),
        lambda path: client.patch(path, body),
    )


def _path(collection: str, namespace: str, name: str) -> str:
    before, _, plural = collection.rpartition("/")
    return f"{before}{f'/namespaces/{namespace}' if namespace else ''}/{plural}/{name}"


async def _each(paths: Iterable[str], request: Callable[[str], Awaitable[bytes]]) -> None:
    at_once = asyncio.Semaphore(_AT_ONCE)

    async def make(path: str) -> None:
        async with at_once:
            try:
                await request(path)
            except ApiError as error:
                if error.status != NOT_FOUND:
                    raise

    await asyncio.gather(*(make(path) for path in paths))
