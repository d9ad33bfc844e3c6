"""When a comparison may stop, and what it may say. Pure; many sessions are decided at once.

A session looks at its data after 6, 8, 10, 12 and 16 pairs, a longer one also later. Each endpoint
is judged by Student's t on the log ratios of its pairs (HEAD to BASE). The error of a false
regression is spent in equal parts over endpoints and looks, so that by Boole's inequality its sum
is bounded whatever their dependence: no look is free, and none needs a joint distribution that
nobody knows.

Equivalence is shown by two one-sided tests against the least effect. Its error is spent over looks
alone, since a verdict of `same` needs all endpoints.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loaddriver.compare.comparison import Verdict
from loaddriver.distributions import fisher_tail, t_quantile, t_tail

Floats: TypeAlias = NDArray[np.float64]
Codes: TypeAlias = NDArray[np.int8]
Flags: TypeAlias = NDArray[np.bool_]

LOOKS = (6, 8, 10, 12, 16)
"""The numbers of pairs after which a session is judged."""
_LATER_LOOKS = (20, 24, 32)
MOST_PAIRS = _LATER_LOOKS[-1]
"""The most pairs of a session that asks for more than usual."""
ENDPOINTS = 6
EVENTS = 3
"""What is counted by run and tested exactly: never bound, withdrawn, gangs not whole."""
FAMILY_ERROR = 0.05
"""The most sessions of equal systems that may report a regression."""
_OF_ENDPOINTS, _OF_EVENTS, OF_VOIDS = 0.04, 0.005, 0.005
_EQUIVALENCE_ERROR = 0.05
SUSPICIOUS = 0.1
"""The tail at which events or voids, not proven yet, keep a session from ending as not worse."""
_LEAST_ERROR = 1e-9  # of pairs that do not vary at all
# What a standard normal variable does not exceed in 95 of 100 cases.
_FOUND = 1.645
_ENDLESS = 10_000


class Code(IntEnum):
    """What the pairs so far say of one endpoint."""

    NOT_ENOUGH_DATA = 0
    SAME = 1
    IMPROVEMENT = 2
    REGRESSION = 3


WORDS: Mapping[int, Verdict] = {
    Code.NOT_ENOUGH_DATA: "not enough data",
    Code.SAME: "same",
    Code.IMPROVEMENT: "improvement",
    Code.REGRESSION: "regression",
}
"""How each code is called."""


@dataclass(frozen=True)
class Spending:
    """How errors are spent, and the least effect that matters, as a ratio above 1.

    `looks` that lie beyond a session's last pair are not spent on.
    """

    least_effect: float = 1.10
    looks: tuple[int, ...] = LOOKS

    @property
    def difference_error(self) -> float:
        """The error of one direction of one endpoint at one look."""
        return _OF_ENDPOINTS / ENDPOINTS / len(self.looks)

    @property
    def equivalence_error(self) -> float:
        """The error of one endpoint's equivalence at one look."""
        return _EQUIVALENCE_ERROR / len(self.looks)

    @property
    def event_error(self) -> float:
        """The error of one exact test at one look."""
        return _OF_EVENTS / EVENTS / len(self.looks)


def spending(most_pairs: int, least_effect: float = 1.10, least_pairs: int = LOOKS[0]) -> Spending:
    """The plan of a session of at least and at most so many pairs, judged last at the most."""
    possible = (*LOOKS, *_LATER_LOOKS)
    looks = tuple(look for look in possible if least_pairs <= look < most_pairs)
    return Spending(least_effect, (*looks, most_pairs))


def half_widths(deviations: Floats, pairs: int, plan: Spending) -> tuple[Floats, Floats]:
    """The half widths of the intervals for a difference, and for equivalence."""
    error = deviations / math.sqrt(pairs)
    return (
        error * t_quantile(plan.difference_error, pairs - 1),
        error * t_quantile(plan.equivalence_error, pairs - 1),
    )


def judge(means: Floats, deviations: Floats, pairs: int, plan: Spending) -> Codes:
    """A code for each mean of log ratios, given the deviation of single ones.

    Equivalence comes first: a proven difference within the least effect matters to nobody.
    """
    least = math.log(plan.least_effect)
    of_difference, of_equivalence = half_widths(deviations, pairs, plan)
    codes = np.full(means.shape, Code.NOT_ENOUGH_DATA, dtype=np.int8)
    codes[means - of_difference > 0] = Code.REGRESSION
    codes[means + of_difference < 0] = Code.IMPROVEMENT
    codes[np.abs(means) + of_equivalence < least] = Code.SAME
    return codes


def codes_of(ratios: Floats, plan: Spending) -> Codes:
    """Codes by session and endpoint; `ratios` are log ratios by session, pair and endpoint."""
    pairs = ratios.shape[-2]
    if pairs < 2:
        return np.full((*ratios.shape[:-2], ratios.shape[-1]), Code.NOT_ENOUGH_DATA, dtype=np.int8)
    return judge(ratios.mean(axis=-2), ratios.std(axis=-2, ddof=1), pairs, plan)


def runs_with_more(head: Floats, base: Floats) -> tuple[Any, Any]:
    """How many runs of each side had an event more often than the usual run of both sides.

    If some runs had it once and the others never, these are the runs that had it. What is usual is
    a mean of logarithms, so that one run with many does not hide a side with several in each run.
    Arguments are counts by session, pair and event.
    """
    levels = np.log1p(head), np.log1p(base)
    usual = np.concatenate(levels, axis=-2).mean(axis=-2, keepdims=True)
    return (levels[0] > usual).sum(axis=-2), (levels[1] > usual).sum(axis=-2)


def event_codes(head: Floats, base: Floats, plan: Spending) -> Codes:
    """Codes by session and event, by Fisher's exact test of the runs that had it more often than
    usual; arguments are counts by session, pair and event.

    Runs are tested, not pods: the pods of a run fail together. What is suspicious and not yet
    proven keeps a session from ending as `same`.
    """
    pairs = head.shape[-2]
    codes = np.full((*head.shape[:-2], head.shape[-1]), Code.SAME, dtype=np.int8)
    tails = _tails(pairs)[runs_with_more(head, base)]
    codes[tails <= SUSPICIOUS] = Code.NOT_ENOUGH_DATA
    codes[tails <= plan.event_error] = Code.REGRESSION
    return codes


def sessions(ratios: Floats, head: Floats, base: Floats, plan: Spending) -> tuple[Codes, Any]:
    """Play many sessions at once: the codes of endpoints and events when each stopped, and after
    how many pairs.
    """
    count = len(ratios)
    codes = np.zeros((count, ratios.shape[-1] + head.shape[-1]), dtype=np.int8)
    stopped = np.zeros(count, dtype=np.int64)
    for look in (each for each in plan.looks if each <= ratios.shape[1]):
        found = np.concatenate(
            [
                codes_of(ratios[:, :look], plan),
                event_codes(head[:, :look], base[:, :look], plan),
            ],
            axis=-1,
        )
        running = stopped == 0
        codes[running] = found[running]
        stopped[running & decided(found)] = look
    return codes, np.where(stopped == 0, min(plan.looks[-1], ratios.shape[1]), stopped)


def decided(codes: Codes) -> Flags:
    """Whether sessions may stop: with a regression, or with nothing left to know."""
    found: Flags = (codes == Code.REGRESSION).any(axis=-1)
    known: Flags = (codes != Code.NOT_ENOUGH_DATA).all(axis=-1)
    return found | known


def pairs_to_settle(mean: float, deviation: float, plan: Spending) -> int | None:
    """The fewest pairs that would decide an endpoint if it stayed as it is, at least those of the
    first look; None beyond 10,000.
    """

    def settles(pairs: int) -> bool:
        found = judge(np.array([mean]), np.array([deviation]), pairs, plan)
        return bool(found[0] != Code.NOT_ENOUGH_DATA)

    if not settles(_ENDLESS):
        return None
    low, high = 1, _ENDLESS  # intervals only narrow, so what is settled stays so
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if settles(middle) else (middle, high)
    return max(high, plan.looks[0])


def pairs_to_find(deviation: float, plan: Spending) -> int | None:
    """The fewest pairs that show a change of the least effect in 95 of 100 sessions, as pairs of
    equal systems vary by `deviation`; None if sessions are too short for it.
    """
    for pairs in range(2, plan.looks[-1] + 1):
        shift = math.log(plan.least_effect) / max(deviation / math.sqrt(pairs), _LEAST_ERROR)
        limit, degrees = t_quantile(plan.difference_error, pairs - 1), pairs - 1
        # Johnson and Welch's approximation of the noncentral t, whose deviation is estimated, too.
        beyond = shift - limit * (1 - 1 / (4 * degrees))
        if beyond >= _FOUND * math.sqrt(1 + limit**2 / (2 * degrees)):
            return max(pairs, plan.looks[0])
    return None


def two_sided_tail(ratios: Floats) -> float:
    """How often chance alone moves the mean of such log ratios as far from 0, by Student's t."""
    mean, error = float(ratios.mean()), float(ratios.std(ddof=1)) / math.sqrt(len(ratios))
    return 2 * t_tail(abs(mean) / error, len(ratios) - 1) if error else float(mean == 0)


def percent_of(log_ratio: float) -> float:
    """A log ratio as a change in percent."""
    return 100 * math.expm1(log_ratio)


def sign_flip_tail(ratios: Floats) -> float:
    """The share of all relabellings of the pairs with at least this mean: a check of t."""
    signs = _signs(len(ratios))
    means = signs @ ratios
    return float((means >= ratios.sum() - 1e-12).mean())


@lru_cache(maxsize=4)
def _signs(pairs: int) -> Floats:
    numbers = np.arange(2**pairs)[:, None] >> np.arange(pairs)
    return np.where(numbers & 1, -1.0, 1.0)


@lru_cache(maxsize=64)
def _tails(pairs: int) -> Floats:
    """Fisher's test of every pair of counts of affected runs."""
    counts = range(pairs + 1)
    return np.array([[fisher_tail(h, b, pairs, pairs) for b in counts] for h in counts])
