"""Demand and fleet per second."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from loaddriver.record.due import MissingPod
from loaddriver.record.nodes import NodeLifetime
from loaddriver.record.rows import PodRow

Counts = NDArray[np.int64]


class Timeline(msgspec.Struct, frozen=True, rename="camel"):
    """Counts at the end of each second since the start; due, created and bound are cumulative.

    The backlog is the maximum within its second, so that no peak is missed.
    """

    start_unix_seconds: int
    due: list[int]
    created: list[int]
    bound: list[int]
    backlog: list[int]
    nodes_ready: list[int]


def make_timeline(
    rows: Sequence[PodRow],
    lifetimes: Iterable[NodeLifetime],
    until_micros: int,
    missing: Sequence[MissingPod] = (),
) -> Timeline:
    """The timeline from the first due time until `until_micros`."""
    due = [*(row.wait_began_micros for row in rows), *(pod.due_micros for pod in missing)]
    start = min(due, default=until_micros) // 1_000_000
    seconds = max(1, until_micros // 1_000_000 - start + 1)
    known = list(lifetimes)
    went = [lifetime.deleted_micros for lifetime in known if lifetime.ready_micros is not None]
    ready = _level([lifetime.ready_micros for lifetime in known], went, start, seconds)
    return Timeline(
        start_unix_seconds=start,
        due=_running(due, start, seconds).tolist(),
        created=_running([row.created_micros for row in rows], start, seconds).tolist(),
        bound=_running([row.bound_micros for row in rows], start, seconds).tolist(),
        backlog=backlog_peaks(rows, start, seconds).tolist(),
        nodes_ready=ready.tolist(),
    )


def backlog_peaks(rows: Sequence[PodRow], start: int, seconds: int) -> Counts:
    """The maximum number of pods without a node within each second."""
    came = [row.created_micros for row in rows]
    went = [_left_backlog_micros(row) for row in rows]
    at = np.array([*came, *(moment for moment in went if moment is not None)], dtype=np.int64)
    step = np.array([1] * len(came) + [-1] * (len(at) - len(came)), dtype=np.int64)
    order = np.lexsort((-step, at))  # at equal times, creations count before bindings and removals
    second, level = at[order] // 1_000_000 - start, np.cumsum(step[order])
    peaks = _at_start(second, level, seconds)
    within = (second >= 0) & (second < seconds)
    np.maximum.at(peaks, second[within], level[within])
    return peaks


def _left_backlog_micros(row: PodRow) -> int | None:
    moment = row.bound_micros if row.bound_micros is not None else row.deleted_micros
    return None if moment is None else max(moment, row.created_micros)


def _at_start(second: Counts, level: Counts, seconds: int) -> Counts:
    """The value at the start of each second."""
    padded = np.concatenate([[0], level])
    begun: Counts = padded[np.searchsorted(second, np.arange(seconds), side="left")]
    return begun


def _running(moments: Sequence[int | None], start: int, seconds: int) -> Counts:
    known = np.array([moment for moment in moments if moment is not None], dtype=np.int64)
    second = np.clip(known // 1_000_000 - start, 0, seconds - 1)
    return np.cumsum(np.bincount(second, minlength=seconds))


def _level(
    came: Sequence[int | None], went: Sequence[int | None], start: int, seconds: int
) -> Counts:
    return _running(came, start, seconds) - _running(went, start, seconds)
