"""The rule by which measured runs set a limit, and what can be expected of it. Pure.

Logarithms of a measure are taken as normal. The limit is the one-sided prediction limit for one
more run of the same build: `mean + t * sd * sqrt(1 + 1/n)`, with Student's t of n - 1 degrees of
freedom (Hahn and Meeker, Statistical Intervals, 1991, section 4.8).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from loaddriver.distributions import t_quantile

FALSE_ALARMS = 0.01
POWER = 0.95
# Runs of one hour differ less than those of another day, so a small spread says little.
LEAST_SD = 0.05
_DIGITS = 2
_SIMULATED = 20_000


@dataclass(frozen=True)
class Expected:
    """What limits by this rule do, simulated: how often one more run of the same build fails, and
    by which factor a measure must get worse for 95 % of the runs to fail.
    """

    false_alarms: float
    found_factor: float


def log_sd(values: Sequence[float]) -> float:
    """The standard deviation of the logarithms of positive values, but not below LEAST_SD."""
    return max(LEAST_SD, statistics.stdev(map(math.log, values)))


def limit_of(values: Sequence[float], op: str) -> float:
    """The limit for an `op` of <= or >=, from at least two positive values, to two digits."""
    sign = 1 if op == "<=" else -1
    middle = statistics.mean(map(math.log, values))
    limit = math.exp(middle + sign * _distance(len(values)) * log_sd(values))
    return _rounded(max(limit, *values) if sign > 0 else min(limit, *values), up=sign > 0)


@lru_cache(maxsize=1024)
def expected(runs: int, sd: float) -> Expected:
    """Of limits from so many runs whose logarithms have this standard deviation."""
    random = np.random.default_rng(runs)
    logs = random.normal(0.0, sd, (_SIMULATED, runs))  # one calibration a row
    sds = np.maximum(LEAST_SD, logs.std(axis=1, ddof=1))
    limits = logs.mean(axis=1) + _distance(runs) * sds
    room = limits - random.normal(0.0, sd, _SIMULATED)  # for one more run
    return Expected(
        false_alarms=float((room < 0).mean()),
        found_factor=math.exp(float(np.quantile(room, POWER))),
    )


def _distance(runs: int) -> float:
    """The prediction limit's distance from the mean, in standard deviations."""
    return t_quantile(FALSE_ALARMS, runs - 1) * math.sqrt(1 + 1 / runs)


def _rounded(value: float, *, up: bool) -> float:
    scale = 10.0 ** (math.floor(math.log10(value)) - _DIGITS + 1)
    steps = value / scale
    whole = math.ceil(steps - 1e-9) if up else math.floor(steps + 1e-9)
    return float(round(whole * scale, 9))
