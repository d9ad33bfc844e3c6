"""One pass over one federated HPA: see, decide, write down what will be written, write, report."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from bigfleet.api.kube.client import CONFLICT, NOT_FOUND, ApiError
from bigfleet.controllers.work_queue import WorkQueue
from bigfleet.federation.autoscaler import claims, handing_back, refusals, report, writing
from bigfleet.federation.autoscaler.carrying_out import Hands, Scene
from bigfleet.federation.autoscaler.report import Findings
from bigfleet.federation.autoscaler.views import Memory, seat
from bigfleet.federation.host import Host, rfc3339
from bigfleet.federation.members.objects import MEMBER_KINDS, Name, WorkloadName
from bigfleet.federation.members.registry import Registry
from bigfleet.federation.objects import (
    AUTOSCALED_BY,
    AUTOSCALERS,
    CLUSTERS,
    FINALIZER,
    Autoscaler,
    Key,
)
from bigfleet.federation.pacing import Pacer
from bigfleet.federation.selection import bounds, preferences_of, selected
from bigfleet.federation.shares import At, Bounds, Plan, Write, rebalance
from bigfleet.model.errors import InvalidInput, Unavailable
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
_CONCURRENCY = 8
_RETRY_SECONDS = 5.0


class AutoscalerController:
    """Keeps the members' HPAs as the rules want them. `now` is in seconds since 1970."""

    def __init__(
        self, host: Host, registry: Registry, now: Callable[[], float], gather_seconds: float
    ) -> None:
        self._host, self._registry, self._now = host, registry, now
        self._queue: WorkQueue[Key] = WorkQueue(self.look, _CONCURRENCY, self._refused)
        self._pacer: Pacer[Key] = Pacer(self._queue.add, gather_seconds)
        self._memories: dict[Key, Memory] = {}
        self._hands = Hands(host, registry, now)
        self.soon = self._pacer.soon

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            await self._queue.run()
        finally:
            self._pacer.close()

    def hpa_changed(self, name: Name) -> None:
        """An HPA in a member is not what it was."""
        self.soon(Key(AUTOSCALERS, name.namespace, name.name))

    def workload_changed(self, key: Key) -> None:
        """A federated workload, or a part of it in a member, is not what it was."""
        for autoscaler in self._host.scaling(key):
            self.soon(autoscaler)

    def autoscaler_changed(self, key: Key) -> None:
        """It is not what it was; those that are refused may have waited for that."""
        self.soon(key)
        for other, each in self._host.autoscalers.items():
            if other.namespace == key.namespace and claims.is_refused(each):
                self.soon(other)

    def reach_changed(self) -> None:
        """A member came, went, was lost or returned."""
        for key in self._host.autoscalers:
            self.soon(key)

    async def look(self, key: Key) -> None:
        """One pass."""
        autoscaler = self._host.autoscalers.get(key)
        if autoscaler is None:
            self._memories.pop(key, None)
            self._pacer.later(key, None)
            return
        if not (self._host.listed and self._registry.judged):
            return  # whoever is still missing will be heard of
        with metrics.federation_reconcile_seconds.time():
            if autoscaler.metadata.deletion_timestamp is not None:
                await self._hand_back(autoscaler)
                return
            if FINALIZER not in autoscaler.metadata.finalizers:
                await self._host.hold(key, autoscaler.metadata)
            # It may be gone after each answer that was waited for.
            if (held := self._host.autoscalers.get(key)) is not None:
                await self._pass(held)

    async def _hand_back(self, autoscaler: Autoscaler) -> None:
        try:
            await handing_back.hand_back(self._host, self._registry, autoscaler)
        except Unavailable:
            self._pacer.later(autoscaler.key, _RETRY_SECONDS)

    async def _pass(self, autoscaler: Autoscaler) -> None:
        findings = Findings(no_target=self._no_target(autoscaler))
        try:
            bounds_of = self._bounds(autoscaler)
            self._check_claim(autoscaler)
        except InvalidInput as error:
            findings.not_accepted, bounds_of = str(error), {}
        memory = self._memories.setdefault(autoscaler.key, Memory())
        if not findings.not_accepted:
            links, target = self._registry.links, _part_of(autoscaler)
            await refusals.ask_again(links, autoscaler, target, memory, self._now())
        scene = self._scene(autoscaler, bounds_of)
        refused_before = set(memory.refusals)
        if not findings.not_accepted:
            findings.plan = rebalance(autoscaler.spec.wish, scene.members, scene.at)
            await self._claim(scene, findings.plan)
            await self._hands.carry_out(scene, findings)
        findings.refusals = [each.sentence for each in memory.refusals.values()]
        # What was written is seen by now, and a status may tell it.
        if (latest := self._host.autoscalers.get(autoscaler.key)) is not None:
            await self._report(self._scene(latest, bounds_of), findings)
        if set(memory.refusals) - refused_before:
            self.soon(autoscaler.key)  # the others share without it
        self._wake(autoscaler.key, findings, memory)

    def _wake(self, key: Key, findings: Findings, memory: Memory) -> None:
        wakes = [each.until for each in memory.refusals.values()]
        wakes += [findings.plan.wake_at] if findings.plan.wake_at is not None else []
        wakes += [self._now() + _RETRY_SECONDS] if findings.failures else []
        self._pacer.later(key, min(wakes) - self._now() if wakes else None)

    def _bounds(self, autoscaler: Autoscaler) -> dict[str, Bounds]:
        preferences = preferences_of(autoscaler)
        return {name: bounds(preferences, name) for name in self._registry.links}

    def _no_target(self, autoscaler: Autoscaler) -> str:
        if autoscaler.target in self._host.workloads:
            return ""
        ref = autoscaler.spec.scale_target_ref
        return f"there is no {ref.kind} {ref.name}; its HPAs wait for it"

    def _check_claim(self, autoscaler: Autoscaler) -> None:
        workload = self._host.workloads.get(autoscaler.target)
        if by := claims.rival(autoscaler, workload, self._host.autoscalers.values()):
            what = f"{autoscaler.spec.scale_target_ref.kind}: scaleTargetRef.name"
            hint = f"is scaled by FederatedHorizontalPodAutoscaler {by} already"
            raise InvalidInput(what, autoscaler.target.name, hint)

    def _scene(self, autoscaler: Autoscaler, bounds_of: Mapping[str, Bounds]) -> Scene:
        memory = self._memories.setdefault(autoscaler.key, Memory())
        target = _part_of(autoscaler)
        members, now = self._registry.members, self._now()
        chosen = selected(autoscaler.spec.clusters, self._registry.labels)
        chosen = [name for name in chosen if name not in memory.refusals]
        ranked = [*chosen, *sorted(set(members) - set(chosen))]
        seats = [
            seat(
                autoscaler,
                members[name],
                bounds_of.get(name, Bounds()),
                name in chosen,
                target,
                memory,
                now,
            )
            for name in ranked
        ]
        at = At(autoscaler.spec.rebalance.settings(), now)
        content = writing.content_of(autoscaler, target)
        return Scene(autoscaler, target, seats, at, content, memory)

    async def _claim(self, scene: Scene, plan: Plan) -> None:
        """Write the clusters onto the workload, which from now on leaves replicas alone."""
        memory = scene.memory
        if memory.claimed != scene.autoscaler.target:
            await handing_back.release_others(self._host, self._registry, scene.autoscaler)
            memory.claimed = scene.autoscaler.target
        workload = self._host.workloads.get(scene.autoscaler.target)
        if workload is None or workload.metadata.deletion_timestamp is not None:
            return
        names = [m.name for m in scene.members if m.held or m.name in plan.targets]
        marks: dict[str, str | None] = {
            AUTOSCALED_BY: scene.autoscaler.metadata.name,
            CLUSTERS: ",".join(names),
        }
        if names and any(workload.metadata.annotations.get(k) != v for k, v in marks.items()):
            await self._host.annotate(scene.autoscaler.target, marks)

    async def _report(self, scene: Scene, findings: Findings) -> None:
        status = report.status_of(
            scene.autoscaler, scene.seats, findings, scene.at, rfc3339(self._now())
        )
        key = scene.autoscaler.key
        if status != scene.autoscaler.status:
            await self._host.set_status(key, report.whole(status))
            if status.conditions != scene.autoscaler.status.conditions:
                self._host.on_workload(scene.autoscaler.target)  # it may have waited for a claim
        for write in findings.done:
            sentence = f"cluster {write.cluster}: {report.change(write)}: {write.reason}"
            _LOG.info("%s/%s: %s", key.namespace, key.name, sentence)
            await self._host.tell(key, scene.autoscaler.metadata, _event(write), sentence)

    def _refused(self, key: Key, error: ApiError) -> None:
        # Who lost a race is told by its watch what to look at again.
        level = logging.INFO if error.status in (CONFLICT, NOT_FOUND) else logging.WARNING
        _LOG.log(level, "%s/%s: %s", key.namespace, key.name, error)


def _part_of(autoscaler: Autoscaler) -> WorkloadName:
    """What it scales, as it is called in each member."""
    target = autoscaler.target
    return WorkloadName(MEMBER_KINDS[target.plural], target.namespace, target.name)


def _event(write: Write) -> str:
    if write.before is None:
        return "ClusterAdded"
    return "ClusterLeft" if write.after is None else "ShareMoved"
