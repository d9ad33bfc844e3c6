"""How each group began, for the record: nothing an anchor did or could not do stays unsaid."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import msgspec

from loaddriver.anchors.choose import PodRef

Outcome = Literal["anchored", "scheduler-first", "no-room"]


class GroupOutcome(msgspec.Struct, frozen=True, rename="camel"):
    """How a planned group began.

    `anchored`: we bound a pod of it before we knew of any other bound one. `scheduler-first`:
    somebody else bound its first pod. `no-room`: none of its pods was ever bound. `reason` says
    why not, and whatever else a reader of the numbers should know; `node`, `rack` and `at_micros`
    (when we heard of it) are about the group's first bound pod.
    """

    cluster: str
    group: str
    outcome: Outcome
    reason: str = ""
    node: str = ""
    rack: str = ""
    at_micros: int | None = None


@dataclass(frozen=True)
class _Start:
    pod: PodRef
    node: str
    ours: bool
    at_micros: int
    reason: str = ""


class Ledger:
    """First bindings of groups and, for groups without one, what stood in the way last."""

    def __init__(self, cluster: str, groups: Iterable[str]) -> None:
        self._cluster = cluster
        self._groups = sorted(groups)
        self._starts: dict[str, _Start] = {}
        self._obstacles: dict[str, str] = {}

    def started(self, group: str) -> bool:
        """Whether a pod of the group was ever bound, by anyone."""
        return group in self._starts

    def obstacle(self, group: str, reason: str) -> None:
        """Note why the group has no anchor as yet."""
        self._obstacles[group] = reason

    def bound(self, group: str, pod: PodRef, node: str, ours: bool, now_micros: int) -> None:
        """Note that a pod is bound. Where two were bound at once and one is ours, that one counts:
        a group that we touched is never shown as the scheduler's work alone.
        """
        first = self._starts.get(group)
        if first is None:
            self._starts[group] = _Start(pod, node, ours, now_micros)
        elif ours and not first.ours:
            at_once = f"{first.pod.name} was bound to {first.node} at the same moment, not by us"
            self._starts[group] = _Start(pod, node, ours, now_micros, at_once)

    def outcomes(
        self, rack_of: Callable[[str], str], over_full: Callable[[str], bool]
    ) -> list[GroupOutcome]:
        """One for each planned group, by name; `rack_of` and `over_full` are asked by node."""
        return [self._outcome(group, rack_of, over_full) for group in self._groups]

    def _outcome(
        self, group: str, rack_of: Callable[[str], str], over_full: Callable[[str], bool]
    ) -> GroupOutcome:
        start = self._starts.get(group)
        if start is None:
            reason = self._obstacles.get(group, "none of its pods was ever seen waiting")
            return GroupOutcome(self._cluster, group, "no-room", reason)
        notes = [start.reason] if start.reason else []
        if start.ours and over_full(start.node):
            notes.append(
                f"{start.node} was over-full for a time: others bound pods to it while we did"
            )
        return GroupOutcome(
            self._cluster,
            group,
            "anchored" if start.ours else "scheduler-first",
            "; ".join(notes),
            start.node,
            rack_of(start.node),
            start.at_micros,
        )
