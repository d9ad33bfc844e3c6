"""Which samples bracket a quantile is a matter of exact binomial sums."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate
from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaddriver.judge.confidence import ERROR_PER_END, bracket, samples_needed

PORTIONS = st.sampled_from([0.5, 0.9, 0.99])
ERRS = Fraction(str(ERROR_PER_END))


def chances_of_fewer(samples: int, portion: float) -> list[Fraction]:
    """By rank from 0: the exact chance that fewer than so many samples lie below the quantile."""
    p = Fraction(str(portion))
    chances = (comb(samples, n) * p**n * (1 - p) ** (samples - n) for n in range(samples))
    return list(accumulate(chances, initial=Fraction(0)))


@settings(deadline=None)  # the machine may be busy
@given(st.integers(0, 140), PORTIONS)
def test_the_ranks_are_the_tightest_that_exact_sums_allow(samples: int, portion: float) -> None:
    """As found by trying every rank with fractions instead of floats."""
    fewer = chances_of_fewer(samples, portion)
    below = [rank for rank in range(1, samples + 1) if fewer[rank] <= ERRS]
    above = [rank for rank in range(1, samples + 1) if 1 - fewer[rank] <= ERRS]
    assert bracket(samples, portion) == (
        max(below) if below else None,
        min(above) if above else None,
    )


@pytest.mark.parametrize(("portion", "needed"), [(0.5, 6), (0.9, 36), (0.99, 368)])
def test_a_quantile_needs_samples_on_both_sides(portion: float, needed: int) -> None:
    """One sample fewer, and even the largest is not surely above the quantile."""
    assert samples_needed(portion) == needed
    assert bracket(needed, portion)[1] == needed
    assert bracket(needed - 1, portion)[1] is None


@settings(deadline=None)  # the machine may be busy
@given(st.integers(1, 200_000), PORTIONS)
def test_ranks_are_in_order_around_the_quantile_whatever_the_size(
    samples: int, portion: float
) -> None:
    """And they exist exactly from the needed number on."""
    lower, upper = bracket(samples, portion)
    assert (upper is not None) == (samples >= samples_needed(portion))
    if lower is not None and upper is not None:
        assert 1 <= lower <= samples * portion + 1
        assert samples * portion <= upper <= samples
