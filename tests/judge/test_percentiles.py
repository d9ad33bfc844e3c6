"""Quantiles keep the pods that were never bound, and admit what the data cannot say."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from loaddriver.judge.confidence import bracket, required_sample_size
from loaddriver.judge.percentiles import (
    AtLeast,
    Quantile,
    Quantiles,
    curve,
    estimate,
    kaplan_meier_cdf,
    lower_bound,
    quantiles,
)

WAITS = st.lists(st.integers(min_value=0, max_value=10_000).map(lambda n: n / 100), max_size=60)
MANY = st.builds(lambda some, times: some * times, WAITS.filter(bool), st.integers(1, 40))
# Drawn number by number, so many would take longer than what is tested with them.
HUNDREDS = st.builds(
    lambda seed, most, count: random.Random(seed).choices(range(most + 1), k=count),
    st.integers(0, 2**32),
    st.integers(0, 500),
    st.integers(368, 600),
)


def size(quantile: Quantile) -> float:
    """For comparing: a bound is worse than any number."""
    assert quantile is not None
    return math.inf if isinstance(quantile, AtLeast) else quantile


def sizes(found: Quantiles) -> list[float]:
    """The quantiles and the upper ends of their intervals."""
    ends = (found.p50_interval[1], found.p99_interval[1])
    return [size(each) for each in (found.p50, found.p90, found.p99, found.max, *ends)]


@given(MANY, WAITS, st.integers(min_value=0, max_value=10_000).map(lambda n: n / 100))
def test_a_pod_never_bound_makes_no_quantile_better(
    ended: list[float], censored: list[float], waited: float
) -> None:
    """However short it was watched: one more unbound pod is never good news."""
    assume(ended or censored)
    before = sizes(quantiles(ended, censored))
    after = sizes(quantiles(ended, [*censored, waited]))
    assert all(new >= old for new, old in zip(after, before, strict=True))


@given(MANY, WAITS, st.integers(min_value=0, max_value=5_000))
def test_losing_a_bound_pod_makes_no_estimate_better(
    ended: list[float], censored: list[float], longer: int
) -> None:
    """A pod that was bound after t, had it stayed unbound beyond t, would only look worse."""
    stayed = ended[1:], [*censored, ended[0] + longer / 100]
    for level in (0.5, 0.9, 0.99):
        before, after = estimate(ended, censored, level), estimate(*stayed, level)
        assert before is not None
        assert after is not None
        assert after >= before


@given(st.lists(st.integers(0, 10_000).map(lambda n: n / 100), min_size=1, max_size=450))
def test_without_loss_a_quantile_is_the_plain_one(ended: list[float]) -> None:
    """The smallest wait that at least that share of pods did not exceed, given enough of them."""
    ordered = sorted(ended)
    found = quantiles(ended)
    for level, value in ((0.5, found.p50), (0.9, found.p90), (0.99, found.p99)):
        rank = math.ceil(round(level * len(ordered), 9))
        assert estimate(ended, (), level) == ordered[rank - 1]
        if len(ordered) >= required_sample_size(level):
            assert value == ordered[rank - 1]
        else:
            assert isinstance(value, AtLeast)
            assert value.required_sample_size == required_sample_size(level)
            assert value.at_least <= ordered[rank - 1]
    assert found.max == ordered[-1]


@given(HUNDREDS)
def test_without_loss_an_interval_ends_at_two_ranks(waits: list[int]) -> None:
    """The samples that the binomial argument names."""
    ended = [wait / 10 for wait in waits]
    ordered, found = sorted(ended), quantiles(ended)
    for level, interval in ((0.5, found.p50_interval), (0.99, found.p99_interval)):
        lower, upper = bracket(len(ordered), level)
        assert lower is not None
        assert upper is not None
        assert interval == (ordered[lower - 1], ordered[upper - 1])


def by_hand(ended: list[float], censored: list[float]) -> list[tuple[float, Fraction]]:
    """The product-limit estimate, pod by pod with fractions: time, share bound by then."""
    left, points = Fraction(1), []
    for time in sorted(set(ended)):
        at_risk = sum(wait >= time for wait in [*ended, *censored])
        left *= 1 - Fraction(ended.count(time), at_risk)
        points.append((time, 1 - left))
    return points


@given(WAITS, WAITS)
def test_the_estimate_agrees_with_brute_force(ended: list[float], censored: list[float]) -> None:
    """For any ties, for waits cut short before the first end, and for none or all cut short."""
    times, share = kaplan_meier_cdf(ended, censored)
    expected = by_hand(ended, censored)
    assert [float(time) for time in times] == [time for time, _ in expected]
    assert all(abs(s - float(e)) < 1e-12 for s, (_, e) in zip(share, expected, strict=True))
    for level in (0.5, 0.9, 0.99):
        reached = [time for time, known in expected if float(known) >= level - 1e-9]
        longest = max([*ended, *censored], default=None)
        assert estimate(ended, censored, level) == (reached[0] if reached else longest)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=60))
def test_when_no_pod_was_bound_every_quantile_is_the_longest_time_watched(
    waits: list[int],
) -> None:
    """At least that, and no interval has an upper end."""
    found = quantiles([], [float(wait) for wait in waits])
    beyond = AtLeast(float(max(waits)))
    assert (found.p50, found.p90, found.p99, found.max) == (beyond,) * 4
    assert isinstance(found.p50_interval[1], AtLeast)


@given(st.lists(st.integers(0, 500), min_size=1), st.integers(1, 60))
def test_pods_given_up_before_the_first_was_bound_change_no_quantile(
    ended: list[int], early: int
) -> None:
    """They say nothing about how long binding takes; only `max` admits that they were there."""
    waits = [wait + 1.0 for wait in ended]
    plain, cut = quantiles(waits), quantiles(waits, [0.5] * early)
    assert cut.max == AtLeast(max(waits))
    assert (cut.p50, cut.p90, cut.p99) == (plain.p50, plain.p90, plain.p99)
    assert (cut.p50_interval, cut.p99_interval) == (plain.p50_interval, plain.p99_interval)


def test_a_pod_given_up_in_the_moment_another_is_bound_was_still_waiting() -> None:
    """Ties count against us: of two pods at 3 s, one bound, one not, half are bound."""
    _, share = kaplan_meier_cdf([3.0], [3.0])
    assert list(share) == [0.5]


@pytest.mark.parametrize(
    ("stuck", "p99", "upper"),
    [
        (0, 990.0, 997.0),
        (3, 993.0, 1000.0),
        (4, AtLeast(987.0), AtLeast(5000.0)),
        (11, AtLeast(5000.0), AtLeast(5000.0)),
    ],
)
def test_a_thousand_pods_bear_few_that_never_bind(
    stuck: int, p99: Quantile, upper: Quantile
) -> None:
    """Three widen the interval up to the slowest pod; a fourth opens it, and p99 is a bound."""
    found = quantiles([float(n) for n in range(1, 1001)], [5000.0] * stuck)
    assert found.p99_interval[1] == upper
    assert found.p99 == p99
    assert isinstance(found.p50, float)


def test_thirty_pods_have_no_p99() -> None:
    """But a bound, and the number of pods that would do."""
    found = quantiles([float(n) for n in range(1, 31)])
    assert found.p50 == 15.0
    assert found.p50_interval == (10.0, 21.0)
    assert found.p99 == AtLeast(28.0, required_sample_size=368, effective_sample_size=30)
    assert found.p99_interval == (
        28.0,
        AtLeast(30.0, required_sample_size=368, effective_sample_size=30),
    )


def test_a_quantile_beyond_the_data_is_a_bound() -> None:
    """Of a thousand pods twenty were never bound: p99 lies beyond what was watched."""
    found = quantiles([1.0] * 980, [300.0] * 10 + [250.0] * 10)
    assert (found.p50, found.p90) == (1.0, 1.0)
    assert found.p99 == AtLeast(300.0)
    assert found.max == AtLeast(300.0)
    assert lower_bound(found.p99) == 300.0


def test_a_pod_watched_briefly_still_counts_for_its_time() -> None:
    """The product-limit estimate by hand: 1 of 4 ends at 1, one leaves at 2, 1 of 2 ends at 3."""
    times, share = kaplan_meier_cdf([1.0, 3.0, 4.0], [2.0])
    assert list(times) == [1.0, 3.0, 4.0]
    assert [round(float(s), 9) for s in share] == [0.25, 0.625, 1.0]


def test_no_pods_have_no_quantiles() -> None:
    """Nothing measured is not zero."""
    assert quantiles([]) == Quantiles(None, None, None, None)
    assert lower_bound(None) is None


@given(WAITS.filter(bool), WAITS)
def test_a_curve_rises_to_what_has_ended(ended: list[float], censored: list[float]) -> None:
    """Points are in order, few, and end at the last pod bound."""
    points = curve(ended, censored)
    assert points == sorted(points)
    assert len(points) <= 160
    assert points[-1][0] == max(ended)


def test_a_long_curve_is_thinned_and_keeps_its_ends() -> None:
    """A hundred thousand pods draw no more points than a screen shows."""
    points = curve([n / 1000 for n in range(1, 100_001)])
    assert len(points) <= 160
    assert points[-1] == (100.0, 1.0)


@given(st.integers(6, 1200), st.sampled_from([0.5, 0.9, 0.99]))
@settings(max_examples=40, deadline=None)
def test_the_ranks_of_an_interval_are_those_of_scipy(
    scipy_stats: Any, samples: int, level: float
) -> None:
    """An implementation by others of the same rule: order statistics and the binomial."""
    ranks = np.arange(1.0, samples + 1)
    ends = scipy_stats.quantile_test(ranks, q=0.0, p=level).confidence_interval(0.95)
    theirs = [None if math.isnan(end) else round(end) for end in (ends.low, ends.high)]
    assert list(bracket(samples, level)) == theirs


@given(WAITS.filter(bool), WAITS)
@settings(max_examples=60, deadline=None)
def test_the_distribution_of_censored_waits_is_that_of_scipy(
    scipy_stats: Any, ended: list[float], censored: list[float]
) -> None:
    """Its Kaplan-Meier estimate, at every time at which a wait ended."""
    times, cdf = kaplan_meier_cdf(ended, censored)
    sample = scipy_stats.CensoredData.right_censored(
        [*ended, *censored], [False] * len(ended) + [True] * len(censored)
    )
    theirs = scipy_stats.ecdf(sample).cdf.evaluate(times)
    assert cdf == pytest.approx(theirs, abs=1e-9)


@given(st.lists(st.floats(0, 1e4), min_size=400, max_size=500), st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_percentiles_without_censoring_are_those_of_scipy(
    scipy_stats: Any, waits: list[float], seed: int
) -> None:
    """The inverse of the empirical distribution, whatever the order of the waits."""
    random.Random(seed).shuffle(waits)
    found = quantiles(waits)
    for level, value in ((0.5, found.p50), (0.9, found.p90), (0.99, found.p99)):
        theirs = float(scipy_stats.quantile(np.array(waits), level, method="inverted_cdf"))
        assert value == pytest.approx(theirs, abs=1e-6)
