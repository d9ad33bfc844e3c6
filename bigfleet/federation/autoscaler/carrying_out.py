"""Carries a plan out: put into the status first, then written one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from bigfleet.api.kube.client import ApiError
from bigfleet.federation.autoscaler import refusals, report, writing
from bigfleet.federation.autoscaler.report import Findings
from bigfleet.federation.autoscaler.views import DOUBT_SECONDS, Doubt, Memory, Seat, cautious
from bigfleet.federation.host import Host, rfc3339
from bigfleet.federation.members.link import MemberLink
from bigfleet.federation.members.objects import CONTENT, Name, WorkloadName
from bigfleet.federation.members.registry import Registry
from bigfleet.federation.objects import Autoscaler
from bigfleet.federation.shares import At, Member, Write
from bigfleet.model.errors import Unavailable
from bigfleet.observe import metrics


@dataclass(frozen=True)
class Scene:
    """All that one pass works with."""

    autoscaler: Autoscaler
    target: WorkloadName
    seats: list[Seat]
    at: At
    content: Mapping[str, Any]
    memory: Memory

    @property
    def members(self) -> list[Member]:
        return [each.member for each in self.seats]


class Hands:
    """Writes into the members. `now` is in seconds since 1970."""

    def __init__(self, host: Host, registry: Registry, now: Callable[[], float]) -> None:
        self._host, self._registry, self._now = host, registry, now

    async def carry_out(self, scene: Scene, findings: Findings) -> None:
        """Write what the plan says, up to the first failure; `findings` tells how far it went."""
        await self._repair_content(scene, findings)
        if not findings.plan.writes:
            return
        lines = report.before_writing(scene.autoscaler, scene.seats, findings.plan.writes)
        status = {"clusters": msgspec.to_builtins(lines)}
        await self._host.set_status(scene.autoscaler.key, status)
        marks = {s.member.name: writing.marks_of(s.hpa) for s in scene.seats}
        for write in findings.plan.writes:
            try:
                await self._write(scene, write, marks)
            except (ApiError, Unavailable) as error:
                self._failed(scene, findings, write, error)
                return
            findings.done.append(write)
            metrics.federation_moves.labels(write.reason).inc()

    def _failed(
        self, scene: Scene, findings: Findings, write: Write, error: ApiError | Unavailable
    ) -> None:
        metrics.federation_failures.labels(write.cluster).inc()
        if write.before is None and refusals.is_refusal(error):
            refusals.note(scene.memory, write.cluster, error, scene.content, self._now())
        else:
            findings.failures.append(refusals.sentence_of(write.cluster, error))

    async def _write(self, scene: Scene, write: Write, marks: dict[str, dict[str, str]]) -> None:
        link = self._link(write.cluster)
        memory = scene.memory
        share = cautious(write.before, write.after)
        memory.doubts[write.cluster] = Doubt(share, write.after, self._now() + DOUBT_SECONDS)
        try:
            await self._send(scene, write, link, marks)
        except ApiError as error:
            if error.status < 500:  # refused: nothing was changed
                memory.doubts.pop(write.cluster, None)
            raise
        memory.doubts.pop(write.cluster, None)

    async def _send(
        self, scene: Scene, write: Write, link: MemberLink, marks: dict[str, dict[str, str]]
    ) -> None:
        metadata = scene.autoscaler.metadata
        name = Name(metadata.namespace, metadata.name)
        if write.after is None:
            await link.delete_hpa(name)
            marks[write.cluster] = {}
            scene.memory.given.pop(write.cluster, None)
            return
        if write.before is None:
            await link.refuse_foreign(name, scene.target)
        kept = writing.marks_after(write, marks[write.cluster], rfc3339(self._now()))
        body = writing.hpa_body(scene.autoscaler, scene.content, write.after, kept)
        await link.apply_hpa(name, body)
        marks[write.cluster] = kept
        self._note_given(scene, write.cluster)

    async def _repair_content(self, scene: Scene, findings: Findings) -> None:
        """HPAs whose metrics or behavior are not the user's any more get them back."""
        for each in scene.seats:
            name, hpa = each.member.name, each.hpa
            if hpa is None or not each.member.reachable or not self._is_stale(scene, name, each):
                continue
            body = writing.hpa_body(
                scene.autoscaler, scene.content, hpa.share, writing.marks_of(hpa)
            )
            try:
                await self._link(name).refuse_foreign(hpa.name, scene.target)
                await self._link(name).apply_hpa(hpa.name, body)
            except (ApiError, Unavailable) as error:
                findings.failures.append(refusals.sentence_of(name, error))
                continue
            self._note_given(scene, name)

    def _note_given(self, scene: Scene, cluster: str) -> None:
        """How the member's API server put what was applied, to notice when somebody changes it."""
        metadata = scene.autoscaler.metadata
        hpa = self._link(cluster).state.hpas.get(Name(metadata.namespace, metadata.name))
        if hpa is not None:
            scene.memory.given[cluster] = hpa.given

    def _link(self, cluster: str) -> MemberLink:
        link = self._registry.links.get(cluster)
        if link is None:
            raise Unavailable(f"member {cluster} left while it was to be written to")
        return link

    def _is_stale(self, scene: Scene, name: str, each: Seat) -> bool:
        assert each.hpa is not None
        digest = each.hpa.metadata.annotations.get(CONTENT)
        given = scene.memory.given
        if digest != writing.digest_of(scene.content):
            return True
        return given.setdefault(name, each.hpa.given) != each.hpa.given
