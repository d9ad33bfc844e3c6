"""Dollars become buckets that round up to powers of two."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.model import penalty
from bigfleet.model.errors import InvalidInput


@pytest.mark.parametrize(
    ("dollars", "bucket"),
    [(0, 1), (0.01, 2), (0.5, 2), (0.51, 3), (1, 3), (1.01, 4), (2, 4), (1024, 13), (8388608, 26)],
)
def test_bucket_bounds(dollars: float, bucket: int) -> None:
    """An amount on a bound belongs to the bucket that ends there."""
    assert penalty.bucket(dollars) == bucket


@given(st.floats(0, 2.0**23))
def test_rounding_is_up_and_by_less_than_a_factor_of_two(dollars: float) -> None:
    """A bucket's bound is at least the amount, and the bucket below ends under it."""
    bucket = penalty.bucket(dollars)
    assert dollars <= penalty.dollars(bucket)
    assert bucket == penalty.ZERO or penalty.dollars(bucket - 1) < dollars


def test_more_than_the_largest_bucket_is_pinned() -> None:
    """No finite price outweighs a pinned machine's interruption."""
    assert penalty.bucket(2.0**23 + 1) == penalty.PINNED
    assert math.isinf(penalty.dollars(penalty.PINNED))


@pytest.mark.parametrize("bad", [-1.0, math.nan])
def test_impossible_amounts_are_refused(bad: float) -> None:
    """A penalty is an amount of dollars."""
    with pytest.raises(InvalidInput):
        penalty.bucket(bad)


@pytest.mark.parametrize("bad", [0, 28, -3])
def test_unknown_buckets_are_refused(bad: int) -> None:
    """A bucket number that the contract does not have is rejected."""
    with pytest.raises(InvalidInput):
        penalty.dollars(bad)
