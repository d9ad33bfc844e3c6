"""What decides a comparison is computed as scipy does."""

from __future__ import annotations

from typing import Any

import pytest

from loaddriver.distributions import (
    binomial_tail,
    fisher_tail,
    proportion_interval,
    t_quantile,
    t_tail,
)


@pytest.mark.parametrize("degrees", [1, 2, 5, 15, 40, 400])
@pytest.mark.parametrize("value", [-30.0, -2.5, -0.1, 0.0, 1e-4, 0.7, 3.0, 12.0, 90.0])
def test_the_tail_of_t_is_that_of_scipy(scipy_stats: Any, value: float, degrees: int) -> None:
    assert t_tail(value, degrees) == pytest.approx(scipy_stats.t.sf(value, degrees), rel=1e-9)


@pytest.mark.parametrize("degrees", [1, 5, 7, 9, 11, 15, 999])
@pytest.mark.parametrize("tail", [0.3, 0.05, 0.01, 0.001, 1e-6])
def test_the_quantile_of_t_is_that_of_scipy(scipy_stats: Any, tail: float, degrees: int) -> None:
    assert t_quantile(tail, degrees) == pytest.approx(scipy_stats.t.isf(tail, degrees), rel=1e-8)


@pytest.mark.parametrize(
    ("head", "base", "head_runs", "base_runs"),
    [(6, 0, 6, 6), (8, 0, 8, 8), (3, 1, 6, 6), (0, 0, 6, 6), (0, 4, 8, 8), (5, 5, 16, 16)],
)
def test_fishers_test_is_that_of_scipy(
    scipy_stats: Any, head: int, base: int, head_runs: int, base_runs: int
) -> None:
    table = [[head, base], [head_runs - head, base_runs - base]]
    expected = scipy_stats.fisher_exact(table, alternative="greater")[1]
    assert fisher_tail(head, base, head_runs, base_runs) == pytest.approx(expected)


@pytest.mark.parametrize(("successes", "trials"), [(7, 7), (0, 3), (5, 9), (0, 0)])
def test_the_tail_of_a_coin_is_that_of_scipy(scipy_stats: Any, successes: int, trials: int) -> None:
    assert binomial_tail(successes, trials) == pytest.approx(
        scipy_stats.binom.sf(successes - 1, trials, 0.5)
    )


@pytest.mark.parametrize(("successes", "trials"), [(0, 20), (3, 20), (20, 20), (310, 10_000)])
def test_the_interval_of_a_proportion_is_that_of_scipy(
    scipy_stats: Any, successes: int, trials: int
) -> None:
    found = scipy_stats.binomtest(successes, trials).proportion_ci(method="exact")
    assert proportion_interval(successes, trials) == pytest.approx(
        (found.low, found.high), abs=1e-9
    )
