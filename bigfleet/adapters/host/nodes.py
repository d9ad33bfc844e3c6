"""A watch on one cluster's Nodes, and waiting for their state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from bigfleet.adapters.host.bootstrap import OPERATION_ANNOTATION
from bigfleet.kube.client import KubeClient
from bigfleet.kube.types import Conditioned
from bigfleet.kube.watch import Changed, Listed, Watch
from bigfleet.ports.host import HostFailure

PATH = "/api/v1/nodes"


class _Metadata(msgspec.Struct):
    name: str
    annotations: dict[str, str] = {}


class _Spec(msgspec.Struct):
    provider_id: str = msgspec.field(name="providerID", default="")


class NodeView(Conditioned, kw_only=True):
    """The fields of a Node that identify its machine and its health."""

    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)

    @property
    def operation_id(self) -> str:
        """The operation whose boot registered it."""
        return self.metadata.annotations.get(OPERATION_ANNOTATION, "")

    @property
    def ready(self) -> bool:
        """Whether the condition Ready is True."""
        return self.is_true("Ready")


NodePredicate = Callable[[NodeView | None], bool]


class ClusterNodes:
    """Watches the Nodes of one cluster until `close`."""

    def __init__(self, cluster: str, client: KubeClient) -> None:
        self.client = client
        self._cluster = cluster
        self._views: dict[str, NodeView] = {}
        self._waiters: dict[str, asyncio.Event] = {}
        self._listed = asyncio.Event()
        self._watch = Watch(client, PATH, NodeView)
        self._watch_task = asyncio.create_task(self._run_watch(), name=f"nodes of {cluster}")
        self._watch_task.add_done_callback(lambda _: self._wake_all())

    async def close(self) -> None:
        """End the watch and its connection."""
        self._watch_task.cancel()
        await asyncio.gather(self._watch_task, return_exceptions=True)
        await self.client.close()

    def get(self, name: str) -> NodeView | None:
        """The Node as last seen; None if there is none or none is known yet."""
        return self._views.get(name)

    async def until(self, name: str, expected: NodePredicate) -> None:
        """Return once `expected` holds for the Node `name`, or for None while there is none.

        HostFailure if the watch has ended.
        """
        while not (self._listed.is_set() and expected(self._views.get(name))):
            if self._watch_task.done():
                raise HostFailure(
                    f"cannot watch the Nodes of cluster {self._cluster}: {self._end_reason()}"
                )
            await self._waiters.setdefault(name, asyncio.Event()).wait()

    def describe(self, name: str) -> str:
        """The Node's state, for error messages."""
        if not self._listed.is_set():
            return f"cannot list the Nodes of cluster {self._cluster}: {self._last_error()}"
        view = self._views.get(name)
        if view is None:
            return f"cluster {self._cluster} has no such Node"
        return "it is Ready" if view.ready else "it exists but is not Ready"

    def _last_error(self) -> str:
        return self._watch.stats.last_error or "the API server has not answered"

    def _end_reason(self) -> str:
        if self._watch_task.cancelled():
            return "the provider is stopping"
        return repr(self._watch_task.exception())

    async def _run_watch(self) -> None:
        async for change in self._watch.follow():
            match change:
                case Listed(items):
                    self._views = {view.metadata.name: view for view in items}
                    self._listed.set()
                    self._wake_all()
                case Changed(view, deleted):
                    self._apply(view, deleted)

    def _apply(self, view: NodeView, deleted: bool) -> None:
        name = view.metadata.name
        if deleted:
            self._views.pop(name, None)
        else:
            self._views[name] = view
        if event := self._waiters.pop(name, None):
            event.set()

    def _wake_all(self) -> None:
        waiters, self._waiters = self._waiters, {}
        for event in waiters.values():
            event.set()
