"""Many pod sizes as few classes: each covers its members, costs little, and stays what it was."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.controllers.operator.merging import Amounts, merges_of, quantize
from bigfleet.controllers.operator.size_classes import (
    MAX_CLASSES,
    MIN_CLASSES,
    Classes,
    MergeCandidate,
    SizeClasses,
    Step,
    allocate_classes,
)
from tests.support.cpu_time import cpu_seconds, slowness


def _size(cpu: int, memory: int, **more: int) -> Amounts:
    return tuple(sorted({"cpu": cpu, "memory": memory, "pods": 1000, **more}.items()))


def _sizes(count: int, seed: int = 1, most_pods: int = 200) -> dict[Amounts, int]:
    """Distinct sizes over three orders of magnitude, as in published traces, and their pods."""
    draw = random.Random(seed)
    found: dict[Amounts, int] = {}
    while len(found) < count:
        cpu = max(10, min(32_000, int(draw.lognormvariate(6.2, 1.5)))) // 10 * 10
        mebibytes = int(cpu * draw.uniform(1, 8) * 1.024)
        found[_size(cpu, mebibytes * 1024)] = draw.randint(1, most_pods)
    return found


def _extra(classes: Classes, pods: Mapping[Amounts, int], name: str = "cpu") -> float:
    """The cost of the classes beyond their pods, as a share."""
    asked = sum(dict(size)[name] * count for size, count in pods.items())
    got = sum(dict(c)[name] * sum(pods[m] for m in members) for c, members in classes.items())
    return got / asked - 1


def _covers(classes: Classes, pods: Mapping[Amounts, int]) -> None:
    """Each size is in one class, and what holds the class holds it."""
    members = [member for each in classes.values() for member in each]
    assert sorted(members) == sorted(pods)
    for corner, each in classes.items():
        for member in each:
            assert all(dict(corner).get(name, 0) >= amount for name, amount in member)


def test_as_many_sizes_as_there_may_be_are_kept_as_they_are() -> None:
    pods = _sizes(MAX_CLASSES)
    assert SizeClasses().of(pods, MAX_CLASSES) == {size: [size] for size in sorted(pods)}


@pytest.mark.parametrize(("count", "most", "extra"), [(65, 64, 0.002), (500, 64, 0.08)])
def test_classes_cover_their_sizes_at_little_cost(count: int, most: int, extra: float) -> None:
    pods = _sizes(count)
    classes = SizeClasses().of(pods, most)
    _covers(classes, pods)
    assert len(classes) <= most
    assert _extra(classes, pods) < extra
    assert _extra(classes, pods, "memory") < extra


@given(
    st.dictionaries(
        st.builds(_size, st.integers(1, 50), st.integers(1, 50)),
        st.integers(1, 1000),
        min_size=1,
        max_size=40,
    ),
    st.integers(MIN_CLASSES, 20),
)
def test_any_sizes_are_covered_by_as_many_classes_as_may_be(
    pods: dict[Amounts, int], most: int
) -> None:
    classes = SizeClasses().of(pods, most)
    _covers(classes, pods)
    assert len(classes) <= max(most, min(len(pods), most))


def test_the_same_sizes_give_the_same_classes_in_whatever_order_they_came() -> None:
    pods = _sizes(200)
    backwards = dict(reversed(pods.items()))
    assert SizeClasses().of(pods, 64) == SizeClasses().of(backwards, 64)


def test_the_pair_that_costs_least_is_merged_first() -> None:
    """With many pods even a small difference costs more than a larger one with few."""
    sizes = [_size(1000, 1000), _size(1010, 1000), _size(5000, 5000), _size(5600, 5000)]
    [first] = merges_of(sizes, [10_000, 1, 1, 1], 3)
    assert {first.kept, first.joined} == {2, 3}
    [first] = merges_of(sizes, [1, 1, 1, 1], 3)
    assert {first.kept, first.joined} == {0, 1}


def test_a_size_far_larger_than_both_is_the_last_resort() -> None:
    """One pod's CPU with another's memory may fit on no machine; both are cheap to merge here."""
    wide, tall = _size(64_000, 1024), _size(100, 2**29)
    common = [_size(1000 * n, 2**20 * n) for n in range(1, 9)]
    merges = merges_of([wide, tall, *common], [1, 1, *[10**6] * 8], 1)
    assert [merge.last_resort for merge in merges[:8]] == [False] * 7 + [True]
    assert {merges[7].kept, merges[7].joined} == {0, 1}
    assert merges[7].cost < 0.001


def test_sizes_with_different_resources_are_merged_last() -> None:
    """A class that merges them would need a GPU for each pod."""
    plain, gpu = _size(1000, 1000), _size(1000, 1000, **{"nvidia.com/gpu": 1000})
    larger = [_size(1000 * n, 1000 * n) for n in range(2, 10)]
    merges = merges_of([plain, gpu, *larger], [1] * 10, 1)
    assert [merge.last_resort for merge in merges] == [False] * 8 + [True]


def test_very_many_sizes_are_quantized_before_they_are_merged() -> None:
    pods = _sizes(3000)
    cells = quantize(sorted(pods))
    assert len(cells) <= 512
    _covers(cells, pods)
    classes = SizeClasses().of(pods, MAX_CLASSES)
    _covers(classes, pods)
    assert _extra(classes, pods) < 0.15


def _churned(pods: dict[Amounts, int], draw: random.Random) -> dict[Amounts, int]:
    """One pod in twenty is replaced by one of another size, some by sizes never seen."""
    after = dict(pods)
    for size in draw.sample(sorted(after), len(after) // 20):
        after[size] -= 1
        if not after[size]:
            del after[size]
    cpu = draw.randrange(100, 4000, 10)
    after[_size(cpu, cpu * 4096)] = 1
    for size in draw.sample(sorted(after), len(after) // 20):
        after[size] += 1
    return after


def test_small_changes_leave_nearly_all_classes_what_they_were() -> None:
    """Else each roll-up would look like another demand, and machines come and go for nothing."""
    draw, pods, classes = random.Random(3), _sizes(300), SizeClasses()
    before = classes.of(pods, MAX_CLASSES)
    kept = []
    for _ in range(40):
        pods = _churned(pods, draw)
        after = classes.of(pods, MAX_CLASSES)
        _covers(after, pods)
        assert len(after) <= MAX_CLASSES
        kept.append(len(set(before) & set(after)) / len(before))
        before = after
    assert sorted(kept)[4] > 0.95, "in nine of ten steps nearly all stay"
    assert _extra(before, pods) < 0.08


def test_when_sizes_have_changed_much_they_are_merged_again() -> None:
    """Old classes would cover new sizes at any price."""
    classes = SizeClasses()
    classes.of(_sizes(300), MAX_CLASSES)
    later = {_size(30_000 + n, 2**24 + n): 5 for n in range(100)}
    found = classes.of(later, MAX_CLASSES)
    _covers(found, later)
    assert _extra(found, later) < 0.01


def test_a_few_classes_more_or_less_move_no_other_size() -> None:
    pods, classes = _sizes(300), SizeClasses()
    many, fewer = classes.of(pods, 48), classes.of(pods, 44)
    assert len(set(many) & set(fewer)) >= len(fewer) - 4


def test_five_hundred_sizes_are_merged_within_twenty_milliseconds() -> None:
    """The minimum of several runs, since other processes use the CPU, with a margin of two."""
    pods = _sizes(500)
    took = min(cpu_seconds(lambda: SizeClasses().of(pods, MAX_CLASSES)) for _ in range(5))
    assert took < 0.04 * slowness()


def test_classes_are_dropped_where_it_costs_the_cluster_least() -> None:
    cheap = MergeCandidate(20, 10.0, 0.1, iter([Step(n, 0.01) for n in range(19, 7, -1)]))
    dear = MergeCandidate(20, 10.0, 0.9, iter([Step(n, 0.01) for n in range(19, 7, -1)]))
    assert allocate_classes({"cheap": cheap, "dear": dear}, 350.0) == {"cheap": 15, "dear": 20}


def test_what_cannot_be_merged_any_further_is_left_as_it_is() -> None:
    stubborn = MergeCandidate(20, 10.0, 0.5, iter([Step(19, 0.01)]))
    assert allocate_classes({"stubborn": stubborn}, 10.0) == {"stubborn": 19}
