"""A gate says how much worse a number may get before it fails."""

from __future__ import annotations

import pytest

from loaddriver.judge.gates import judge_gates
from loaddriver.judge.sensitivity import least_regression
from tests.judge.judge_rig import gate


@pytest.mark.parametrize(
    ("op", "limit", "value", "words"),
    [
        ("<=", 20.0, 0.1, "more than 19.9 units more (200 times)"),
        ("<=", 10.0, 4.0, "more than 6 units more (2.5 times)"),
        ("<=", 1.04, 1.0, "more than 0.04 units more (1.0 times)"),
        ("<=", 5.0, 0.0, "more than 5 units more"),
        ("<=", 0.0, 0.0, "any change for the worse"),
        (">=", 0.9, 1.0, "more than 0.1 units less (10 % less)"),
        (">=", 200.0, 200.0, "any change for the worse"),
        ("==", 0.0, 0.0, "any change"),
        ("==", 0.0, 3.0, "fails already"),
        ("<=", 1.0, 2.0, "fails already"),
        ("<=", 1.0, None, "fails: not measured"),
    ],
)
def test_the_least_regression_that_fails_is_said_in_units_and_as_a_factor(
    op: str, limit: float, value: float | None, words: str
) -> None:
    [result] = judge_gates({"metric": value}, [gate("metric", limit, op)])  # type: ignore[arg-type]
    assert least_regression(result) == words
