"""Feeds a history from a live cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from bigfleet.kube.client import KubeClient
from bigfleet.kube.watch import Listed, Watch
from tests.scenarios.deletions import Deletions
from tests.scenarios.history import History, Object
from tests.scenarios.timing import POLL_INTERVAL_SECONDS

PODS, NODES, EVENTS = "/api/v1/pods", "/api/v1/nodes", "/api/v1/events"


@asynccontextmanager
async def watched(
    client: KubeClient, history: History, deletions: Deletions
) -> AsyncIterator[None]:
    """Within it, the history is kept up to date; it begins once everything has been listed."""
    pods = _Followed(client, PODS, history.see_pod, partial(history.relisted, history.pods))
    nodes = _Followed(client, NODES, history.see_node, partial(history.relisted, history.nodes))
    # Older Events tell older stories.
    events = _Followed(client, EVENTS, history.see_event, lambda _: None, from_the_list=False)
    followed = (pods, nodes, events)
    tasks = [asyncio.create_task(each.follow()) for each in followed]
    tasks.append(asyncio.create_task(_follow_deletions(history, deletions)))
    try:
        await asyncio.gather(*(each.listed.wait() for each in followed))
        yield
        for task in tasks:
            if task.done():
                task.result()  # a watch that ended has something to say
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass
class _Followed:
    """One collection, and who is told of its objects and of a new list of them."""

    client: KubeClient
    path: str
    see: Callable[[Object, bool], None]
    relisted: Callable[[list[Object]], None]
    from_the_list: bool = True
    listed: asyncio.Event = field(default_factory=asyncio.Event)

    async def follow(self) -> None:
        async for change in Watch(self.client, self.path, dict).follow():
            if isinstance(change, Listed):
                for body in change.items if self.from_the_list else ():
                    self.see(body, False)
                self.relisted(change.items)
                self.listed.set()
            else:
                self.see(change.item, change.deleted)


async def _follow_deletions(history: History, deletions: Deletions) -> None:
    while True:
        for namespace, name, by in deletions.by_others():
            history.see_deletion(namespace, name, by)
        await asyncio.sleep(POLL_INTERVAL_SECONDS)
