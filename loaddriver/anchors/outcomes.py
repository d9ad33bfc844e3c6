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

    `anchored`: its first bound pod went to the node that was nominated for it. `scheduler-first`:
    kube-scheduler chose that node itself. `no-room`: none of its pods was ever bound, and `reason`
    says why not. `pod` (its UID), `node`, `rack` and `at_micros` (when we heard of it) are about
    the group's first bound pod.
    """

    cluster: str
    group: str
    outcome: Outcome
    reason: str = ""
    pod: str = ""
    node: str = ""
    rack: str = ""
    at_micros: int | None = None


@dataclass(frozen=True)
class _Start:
    pod: PodRef
    node: str
    as_nominated: bool
    at_micros: int


class OutcomeRecorder:
    """First bindings of groups and, for groups without one, what stood in the way last."""

    def __init__(self, cluster: str, groups: Iterable[str]) -> None:
        self._cluster = cluster
        self._groups = sorted(groups)
        self._starts: dict[str, _Start] = {}
        self._obstacles: dict[str, str] = {}

    def started(self, group: str) -> bool:
        """Whether a pod of the group was ever bound, by anyone."""
        return group in self._starts

    def record_obstacle(self, group: str, reason: str) -> None:
        """Note why the group has no anchor as yet."""
        self._obstacles[group] = reason

    def bound(
        self, group: str, pod: PodRef, node: str, as_nominated: bool, now_micros: int
    ) -> None:
        """Note that a pod is bound, `as_nominated` to the node that we nominated; the first one
        counts.
        """
        self._starts.setdefault(group, _Start(pod, node, as_nominated, now_micros))

    def outcomes(self, rack_of: Callable[[str], str]) -> list[GroupOutcome]:
        """One for each planned group, by name; `rack_of` is asked by node."""
        return [self._outcome(group, rack_of) for group in self._groups]

    def _outcome(self, group: str, rack_of: Callable[[str], str]) -> GroupOutcome:
        start = self._starts.get(group)
        if start is None:
            reason = self._obstacles.get(group, "none of its pods was ever seen waiting")
            return GroupOutcome(self._cluster, group, "no-room", reason)
        return GroupOutcome(
            self._cluster,
            group,
            "anchored" if start.as_nominated else "scheduler-first",
            pod=start.pod.uid,
            node=start.node,
            rack=rack_of(start.node),
            at_micros=start.at_micros,
        )
