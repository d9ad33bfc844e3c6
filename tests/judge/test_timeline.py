"""The time line adds up, and no peak hides between two of its seconds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loaddriver.judge.timeline import backlog_peaks, make_timeline
from loaddriver.record.nodes import NodeLifetime
from loaddriver.record.rows import PodRow
from tests.judge.judge_rig import START, at, row

PODS = st.lists(
    st.tuples(st.integers(0, 9000), st.none() | st.integers(0, 6000)), min_size=1, max_size=30
)


def rows(pods: list[tuple[int, int | None]]) -> list[PodRow]:
    return [
        row(str(number), start / 1000, None if wait is None else (start + wait) / 1000)
        for number, (start, wait) in enumerate(pods)
    ]


@given(PODS)
def test_the_backlog_is_the_largest_within_each_second(
    pods: list[tuple[int, int | None]],
) -> None:
    """As counted pod by pod at every second's begin and whenever a pod came."""
    made = rows(pods)

    def there(moment: int, *, begin: bool) -> int:
        came = [r for r in made if r.created_micros < moment + (not begin)]
        return sum(r.bound_micros is None or r.bound_micros >= moment for r in came)

    peaks = [there(at(second), begin=True) for second in range(20)]
    for moment in {r.created_micros for r in made}:
        second = (moment - START) // 1_000_000
        peaks[second] = max(peaks[second], there(moment, begin=False))
    assert backlog_peaks(made, START // 1_000_000, 20).tolist() == peaks


@given(PODS)
def test_what_was_created_and_bound_adds_up(pods: list[tuple[int, int | None]]) -> None:
    """The last second of the line is the run's total."""
    made = rows(pods)
    line = make_timeline(made, [], at(100))
    assert line.created[-1] == len(made)
    assert line.bound[-1] == sum(r.bound_micros is not None for r in made)
    assert line.created == sorted(line.created)
    assert len(line.created) == len(line.bound) == len(line.backlog) == len(line.nodes_ready)


def test_what_came_before_a_window_is_its_first_level_not_its_peak() -> None:
    """A backlog of the ramp that is gone when the soak begins is not the soak's."""
    made = rows([(0, 3000), (100, 3000), (200, 20_000)])
    assert backlog_peaks(made, START // 1_000_000 + 10, 5).tolist() == [1, 1, 1, 1, 1]


def test_nodes_come_and_go() -> None:
    """Ready nodes are counted from their readiness until their deletion."""
    lifetimes = [
        NodeLifetime("n1", at(1), 0, at(2), at(4), "r1"),
        NodeLifetime("n2", at(1), 0, at(3), None, "r1"),
        NodeLifetime("n3", at(1), 0, None, at(4), "r1"),
    ]
    line = make_timeline([row("a")], lifetimes, at(5))
    assert line.nodes_ready == [0, 0, 1, 2, 1, 1]
