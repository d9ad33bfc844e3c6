"""Records the outcome of each group: anchored, scheduled first, or without an anchor."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import msgspec

from loaddriver.anchors.choose import PodRef

Outcome = Literal["anchored", "scheduler-first", "no-room"]


class GroupOutcome(msgspec.Struct, frozen=True, rename="camel"):
    """The outcome of a planned group.

    `anchored`: its first bound pod went to the node that was nominated for it. `scheduler-first`:
    kube-scheduler chose that node itself. `no-room`: none of its pods was ever bound, with a
    `reason`. `pod` (its UID), `node`, `rack` and `at_micros` (when it was observed) are those of
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
    """The first binding of each group or, without one, its last obstacle."""

    def __init__(self, cluster: str, groups: Iterable[str]) -> None:
        self._cluster = cluster
        self._groups = sorted(groups)
        self._starts: dict[str, _Start] = {}
        self._obstacles: dict[str, str] = {}

    def started(self, group: str) -> bool:
        """Whether a pod of the group was ever bound."""
        return group in self._starts

    def record_obstacle(self, group: str, reason: str) -> None:
        """Record why the group has no anchor yet."""
        self._obstacles[group] = reason

    def bound(
        self, group: str, pod: PodRef, node: str, as_nominated: bool, now_micros: int
    ) -> None:
        """Record that a pod was bound, `as_nominated` or elsewhere; only the first one counts."""
        self._starts.setdefault(group, _Start(pod, node, as_nominated, now_micros))

    def outcomes(self, rack_of: Callable[[str], str]) -> list[GroupOutcome]:
        """The outcome of each planned group, by name; `rack_of` maps nodes to racks."""
        return [self._outcome(group, rack_of) for group in self._groups]

    def _outcome(self, group: str, rack_of: Callable[[str], str]) -> GroupOutcome:
        start = self._starts.get(group)
        if start is None:
            reason = self._obstacles.get(group, "none of its pods was observed pending")
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
