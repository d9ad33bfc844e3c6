"""Errors of sequential verdicts are as stated, by simulation with fixed seeds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from loaddriver.compare.sequential import (
    ENDPOINTS,
    EVENTS,
    FAMILY_ERROR,
    LOOKS,
    OF_VOIDS,
    Code,
    Codes,
    Floats,
    Spending,
    codes_of,
    event_codes,
    judge,
    pairs_to_find,
    pairs_to_settle,
    sessions,
    sign_flip_tail,
    spending,
)
from loaddriver.distributions import proportion_interval

PLAN = Spending()
SESSIONS = 4000
TEN_PERCENT = math.log(1.1)


def drawn(
    deviation: float, effect: float = 0.0, correlation: float = 0.0, heavy: bool = False
) -> Floats:
    """Log ratios of many sessions; the first endpoint has the effect."""
    random = np.random.default_rng(7)
    shape = (SESSIONS, LOOKS[-1], ENDPOINTS)
    own = random.standard_t(5, shape) * math.sqrt(3 / 5) if heavy else random.normal(size=shape)
    shared = random.normal(size=(*shape[:2], 1))
    noise = math.sqrt(1 - correlation) * own + math.sqrt(correlation) * shared
    found: Floats = deviation * noise
    found[..., 0] += effect
    return found


def quiet() -> Floats:
    """Runs without any event."""
    return np.zeros((SESSIONS, LOOKS[-1], EVENTS))


def played(ratios: Floats) -> tuple[Codes, Floats]:
    return sessions(ratios, quiet(), quiet(), PLAN)


def regressed(codes: Codes) -> float:
    return float((codes == Code.REGRESSION).any(axis=-1).mean())


@pytest.mark.parametrize(
    ("deviation", "correlation", "heavy"),
    [(0.05, 0.0, False), (0.05, 0.8, False), (0.2, 0.0, False), (0.05, 0.0, True)],
)
def test_equal_systems_rarely_regress(deviation: float, correlation: float, heavy: bool) -> None:
    """In at most 5 % of sessions over all six endpoints and five looks, whatever the noise."""
    codes, _ = played(drawn(deviation, correlation=correlation, heavy=heavy))
    false = round(regressed(codes) * SESSIONS)
    assert proportion_interval(false, SESSIONS)[1] <= FAMILY_ERROR


@pytest.mark.parametrize(("deviation", "power"), [(0.03, 0.975), (0.05, 0.975), (0.07, 0.92)])
def test_ten_percent_are_found(deviation: float, power: float) -> None:
    """Nearly always where single pairs vary by 5 %, and mostly where they vary by 7 %."""
    codes, _ = played(drawn(deviation, TEN_PERCENT))
    found = int((codes[:, 0] == Code.REGRESSION).sum())
    assert proportion_interval(found, SESSIONS)[0] >= power, found / SESSIONS


def test_an_effect_as_large_as_the_least_is_rarely_called_the_same() -> None:
    """In at most 5 % of sessions: `same` is shown, and not the want of evidence."""
    for deviation in (0.02, 0.05, 0.1, 0.2):
        codes, _ = played(drawn(deviation, TEN_PERCENT))
        assert (codes[:, 0] == Code.SAME).mean() <= 0.05


def test_equal_systems_are_shown_to_be_the_same() -> None:
    """In most sessions, and long before the last look where noise is small."""
    codes, pairs = played(drawn(0.04))
    assert (codes == Code.SAME).all(axis=-1).mean() > 0.95
    assert pairs.mean() < 10


def test_noise_is_not_called_the_same() -> None:
    """Where single pairs vary by half, sixteen of them settle nothing."""
    codes, pairs = played(drawn(0.5))
    assert (codes[:, 0] == Code.NOT_ENOUGH_DATA).mean() > 0.95
    assert (pairs == LOOKS[-1]).mean() > 0.95


def test_verdicts_mirror_when_sides_swap() -> None:
    ratios = drawn(0.05, TEN_PERCENT)[:50, :12]
    swapped = {
        Code.REGRESSION: Code.IMPROVEMENT,
        Code.IMPROVEMENT: Code.REGRESSION,
    }
    there, back = codes_of(ratios, PLAN), codes_of(-ratios, PLAN)
    assert [[swapped.get(Code(c), c) for c in row] for row in there] == back.tolist()


def test_a_proven_difference_within_the_least_effect_is_the_same() -> None:
    """Nobody needs to act on one percent that never varies."""
    (code,) = judge(np.array([0.01]), np.array([0.001]), 6, PLAN)
    assert code == Code.SAME


def test_fewer_pairs_spend_on_fewer_looks() -> None:
    assert spending(6).looks == (6,)
    assert spending(9).looks == (6, 8, 9)
    assert spending(16) == PLAN
    assert spending(6).difference_error == pytest.approx(5 * PLAN.difference_error)


def test_the_errors_add_up_to_the_stated_one() -> None:
    """Six endpoints and three events at each look, and the voids once."""
    looks = len(PLAN.looks)
    spent = looks * (ENDPOINTS * PLAN.difference_error + EVENTS * PLAN.event_error) + OF_VOIDS
    assert spent == pytest.approx(FAMILY_ERROR)


@pytest.mark.parametrize(("mean", "deviation"), [(0.05, 0.1), (0.0, 0.2), (0.09, 0.05)])
def test_the_pairs_that_settle_it_are_the_fewest(mean: float, deviation: float) -> None:
    pairs = pairs_to_settle(mean, deviation, PLAN)
    assert pairs is not None

    def code(number: int) -> int:
        return int(judge(np.array([mean]), np.array([deviation]), number, PLAN)[0])

    assert code(pairs) != Code.NOT_ENOUGH_DATA
    assert code(pairs - 1) == Code.NOT_ENOUGH_DATA


def test_what_no_number_of_pairs_settles_says_so() -> None:
    assert pairs_to_settle(0.09, 30.0, PLAN) is None


def test_the_sign_flip_counts_relabellings() -> None:
    assert sign_flip_tail(np.full(6, 0.1)) == 1 / 64
    assert sign_flip_tail(np.array([0.1, -0.1])) == pytest.approx(3 / 4)


def events(head: int, base: int, pairs: int) -> Code:
    """The code of an event that so many runs of each side had."""
    return coded([1] * head + [0] * (pairs - head), [1] * base + [0] * (pairs - base))


def coded(head: list[int], base: list[int]) -> Code:
    """The code of an event that happened so often in each run."""
    of_head, of_base = (np.array(counts, dtype=np.float64)[:, None] for counts in (head, base))
    return Code(event_codes(of_head, of_base, PLAN)[0])


def test_what_only_head_does_in_every_run_is_a_regression() -> None:
    """A pod that never binds, in each run of HEAD and in none of BASE."""
    assert events(8, 0, 8) == Code.REGRESSION
    assert events(8, 8, 8) == Code.SAME
    assert events(0, 8, 8) == Code.SAME


def test_a_suspicion_keeps_a_session_going() -> None:
    """Six of six runs are not proven at the first look, but no reason to stop either."""
    assert events(6, 0, 6) == Code.NOT_ENOUGH_DATA
    assert events(1, 0, 6) == Code.SAME


def test_what_happens_in_each_run_and_more_often_in_head_is_a_regression() -> None:
    """A profile in which some pods are always withdrawn hides none that HEAD withdraws besides."""
    assert coded([400] * 8, [1] * 8) == Code.REGRESSION
    assert coded([400] * 8, [1] * 7 + [1000]) == Code.NOT_ENOUGH_DATA
    assert coded([1] * 8, [1] * 8) == Code.SAME


@pytest.mark.parametrize("deviation", [0.02, 0.05])
def test_as_many_pairs_as_a_pilot_says_find_the_least_effect(deviation: float) -> None:
    """In 95 of 100 sessions, and one less would not, but for chance."""
    pairs = pairs_to_find(deviation, PLAN)
    assert pairs is not None

    def found(count: int) -> float:
        random = np.random.default_rng(7)
        ratios = random.normal(math.log(PLAN.least_effect), deviation, (20_000, count))
        codes = judge(ratios.mean(axis=1), ratios.std(axis=1, ddof=1), count, PLAN)
        return float((codes == Code.REGRESSION).mean())

    assert found(pairs) >= 0.93
    assert found(pairs - 1) < found(pairs)


def test_noise_that_hides_the_least_effect_is_said_to() -> None:
    assert pairs_to_find(0.3, PLAN) is None


def test_a_long_session_has_further_looks() -> None:
    assert spending(24).looks == (6, 8, 10, 12, 16, 20, 24)
