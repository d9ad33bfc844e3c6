"""One cluster with its own autoscaler and fleet, in which scenarios are played one after another.

Each lane is alone: control plane, autoscaler and machines are nobody else's. So the numbers of
machines that a scenario sees are its own, reserved machines are there for it, and an autoscaler
that crashes or gets stuck takes no other scenario along. After each scenario its objects are
deleted; the lane is used again only if then every object and machine is as it was at first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bigfleet.kube.client import CONNECTION_ERRORS, NOT_FOUND, ApiError, KubeClient
from bigfleet.tasks import cancel_and_wait
from controlplane.request import Binaries
from loaddriver.substrates.base import SubstrateError
from loaddriver.substrates.local import LocalSubstrate
from tests.scenarios import objects
from tests.scenarios.deletions import Deletions
from tests.scenarios.files import Case
from tests.scenarios.history import History
from tests.scenarios.kubectl import Kubectl
from tests.scenarios.network import NetworkAgents
from tests.scenarios.playing import play
from tests.scenarios.resources import Resources, UnknownKind
from tests.scenarios.story import story
from tests.scenarios.systems.system import System, SystemContext
from tests.scenarios.timing import (
    LIST_INTERVAL_SECONDS,
    POLL_INTERVAL_SECONDS,
    RESET_TIMEOUT_SECONDS,
)
from tests.scenarios.watching import watched
from tests.support.substrates import FEW_OBJECTS

_CLUSTER = "c"
# What plain objects need beside the controllers that every load has.
CONTROL_PLANE = replace(
    FEW_OBJECTS,
    network_agents=True,
    node_monitor_seconds=1,
    scheduler_config=Path(__file__).with_name("scheduler.yaml"),
    extra_controllers=(
        "daemonset-controller",
        "persistentvolume-binder-controller",
        "persistentvolume-protection-controller",
        "persistentvolumeclaim-protection-controller",
        "resourcequota-controller",
        "cronjob-controller",
    ),
)
_LEFT_SHOWN = 12
_BACKGROUND = {"propagationPolicy": "Background"}
_AT_ONCE = {"gracePeriodSeconds": 0}


@dataclass(frozen=True)
class LaneContext:
    """What all lanes have in common: where their files lie, and what runs in them."""

    run_id: str
    data: Path
    logs: Path
    binaries: Binaries
    environment: Mapping[str, str]
    system: Callable[[], System]


@dataclass(frozen=True)
class Outcome:
    """How a scenario went: the story of what is wrong, "" if nothing is."""

    seconds: float
    story: str


class Lane:
    """Start it, `play` scenarios while it is `usable`, and always stop it.

    `seen` is the history of the scenario that is being played, or was last.
    """

    seen: History

    def __init__(self, context: LaneContext, name: str) -> None:
        self._context, self._name = context, name
        self._system = context.system()
        self._data = context.data / name
        self._undo = AsyncExitStack()
        self.usable = False

    async def start(self) -> None:
        """Return once the autoscaler serves the empty cluster. SubstrateError."""
        self._data.mkdir(mode=0o700)
        context, logs = self._context, self._context.logs / self._name
        settings = replace(CONTROL_PLANE, before_controllers=self._system.install)
        self._substrate = LocalSubstrate(
            context.run_id, self._data, logs, context.binaries, context.environment, settings
        )
        self._undo.push_async_callback(self._substrate.stop)
        (self._cluster,) = await self._substrate.start_clusters([_CLUSTER])
        cluster = self._cluster
        self._client = await KubeClient.from_kubeconfig(cluster.kubeconfigs["admin"])
        self._undo.push_async_callback(self._client.close)
        self._agents = asyncio.create_task(NetworkAgents(self._client).run())
        self._undo.push_async_callback(cancel_and_wait, self._agents)
        await self._system.start(SystemContext(self._substrate, cluster, self._client, self._data))
        self._resources = await Resources.of(self._client)
        await self._make_namespace()
        self._at_first = await self._resources.everything()
        self.usable = True

    async def stop(self) -> None:
        """End everything that was started in it."""
        self.usable = False
        stopping = asyncio.create_task(self._undo.aclose())
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            await stopping  # half a lane must not be left behind
            raise

    async def play(self, case: Case) -> Outcome:
        """Play it, and leave the lane as it was; not `usable` where that did not work out."""
        began = time.monotonic()
        seen = self.seen = History(lambda: time.monotonic() - began)
        unexpected_exit = asyncio.create_task(self._substrate.first_unexpected_exit())
        playing = asyncio.create_task(self._play(case, seen))
        try:
            first = (unexpected_exit, playing, self._agents)
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if unexpected_exit.done():
                self.usable = False
                wrong = [
                    f"{unexpected_exit.result().sentence}\n"
                    + "\n".join(unexpected_exit.result().last_lines)
                ]
                text = story(case, self._system.name, wrong, seen, "")
            else:
                if self._agents.done():
                    self._agents.result()
                text = playing.result()
        finally:
            for task in (unexpected_exit, playing):
                task.cancel()
            await asyncio.gather(unexpected_exit, playing, return_exceptions=True)
        return Outcome(time.monotonic() - began, text)

    async def _play(self, case: Case, seen: History) -> str:
        self.usable = False
        assert self._cluster.audit_log is not None, "this substrate has one"
        deletions = Deletions(self._cluster.audit_log)
        async with watched(self._client, seen, deletions):
            kubectl = Kubectl(self._client, self._resources, seen)
            wrong = await play(case.scenario, self._system, kubectl)
            said = await self._explained(seen) if wrong else ""
            text = story(case, self._system.name, wrong, seen, said) if wrong else ""
            seen.note("reset")
            left = await self.reset(case, seen)
            self.usable = not left
            if left and "machines" in self._system.judged:
                shown = [
                    f"after {RESET_TIMEOUT_SECONDS:g} s without any pods: {each}" for each in left
                ]
                text += "\n\n" * bool(text)
                text += story(case, self._system.name, shown, seen, await self._explained(seen))
        return text

    async def reset(self, case: Case, seen: History) -> list[str]:
        """Delete what the scenario made; what is not as it was at first when time is up.

        What the watches say comes first, because all objects are listed in some sixty requests.
        """
        applied = [body for step in case.scenario.steps for body in step.apply or ()]
        namespaces = [b["metadata"]["name"] for b in applied if b["kind"] == "Namespace"]
        for body in reversed(applied):
            if body["kind"] != "Namespace":
                await self._delete(objects.reference_of(body))
        ends = time.monotonic() + RESET_TIMEOUT_SECONDS
        await self._until(partial(self._no_pods, seen), ends)
        for name in namespaces:
            await self._delete(f"Namespace/{name}")
        await self._until(partial(self._as_many_nodes, seen), ends)
        await self._until(self._nothing_held, ends, LIST_INTERVAL_SECONDS)
        left = await self._left()
        while left and time.monotonic() < ends:
            await asyncio.sleep(LIST_INTERVAL_SECONDS)
            left = await self._left()
        return left

    async def _left(self) -> list[str]:
        now = await self._resources.everything()
        own = tuple(f"{kind}/" for kind in self._system.internal_kinds)
        more = [
            f"{name} is left" for name in sorted(now - self._at_first) if not name.startswith(own)
        ]
        fewer = [f"{name} is gone" for name in sorted(self._at_first - now)]
        held = [f"machine {machine} is held" for machine in await self._system.held()]
        return [*more, *fewer, *held][:_LEFT_SHOWN]

    async def _until(
        self,
        holds: Callable[[], Awaitable[bool]],
        ends: float,
        every: float = POLL_INTERVAL_SECONDS,
    ) -> bool:
        while time.monotonic() < ends:
            if await holds():
                return True
            await asyncio.sleep(every)
        return False

    async def _no_pods(self, seen: History) -> bool:
        """Pods of a Node that is gone are removed: Kubernetes would take a minute for it."""
        pods = [pod for pod in seen.pods.values() if pod.gone_at is None]
        nodes = {node.name for node in seen.present()}
        for pod in pods:
            if pod.node not in ("", *nodes):
                path = self._resources.path("Pod", pod.namespace)
                await self._remove(f"{path}/{pod.name}", _AT_ONCE)
        return not pods

    async def _as_many_nodes(self, seen: History) -> bool:
        return len(seen.present()) == sum(name.startswith("Node/") for name in self._at_first)

    async def _nothing_held(self) -> bool:
        return not await self._system.held()

    async def _delete(self, reference: str) -> None:
        with suppress(UnknownKind):  # nor was any made
            await self._remove(self._resources.path_of(reference), _BACKGROUND)

    async def _remove(self, path: str, options: Mapping[str, Any]) -> None:
        try:
            await self._client.delete(path, options)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise

    async def _make_namespace(self) -> None:
        """One for all scenarios: Kubernetes takes five seconds to begin to delete a namespace."""
        body = {"metadata": {"name": objects.NAMESPACE}}
        await self._client.create(self._resources.path("Namespace", ""), body)
        account = self._resources.path("ServiceAccount", objects.NAMESPACE, "default")

        async def there() -> bool:
            try:
                await self._client.get(account)
            except ApiError:
                return False
            return True

        if not await self._until(there, time.monotonic() + RESET_TIMEOUT_SECONDS):
            raise SubstrateError(f"lane {self._name}: namespace {objects.NAMESPACE} has no account")

    async def _explained(self, seen: History) -> str:
        try:
            return await self._system.explain(seen)
        except (ApiError, *CONNECTION_ERRORS) as error:
            return f"it does not say: {error!r}"
