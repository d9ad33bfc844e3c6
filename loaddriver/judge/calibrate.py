"""Calibrates gates: limits from measured runs, by one rule.

A limit on a time or a rate is beyond what a run of the same build reaches by chance: beyond the
worst run by the spread of the runs (worst minus best), by at least a quarter of the worst, and
outside the confidence interval of every run, rounded outwards to two digits. Other limits (a
count, a share, an exact value) are contracts and stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from loaddriver.errors import ProfileError
from loaddriver.judge.gates import GateResult, GateSpec, format_number, judge_gates
from loaddriver.judge.schema import Summary

RULE = (
    "the worst run, and beyond it the larger of the runs' spread and a quarter of the worst, or "
    "the end of a run's own interval where that is further out, rounded to two digits"
)
FEWEST_RUNS = 3
MEASURED_UNITS = ("seconds", "times the bare run", "pods per second")
_MARGIN = 0.25
_DIGITS = 2


@dataclass(frozen=True)
class Measured:
    """A finished run and, for ratios, its bare run."""

    summary: Summary
    bare: Summary | None = None


@dataclass(frozen=True)
class Calibrated:
    """A gate with its new limit and origin; `kept` is the reason if they stay the same."""

    gate: GateSpec
    limit: float
    origin: str
    kept: str = ""


def calibrate(
    profile: str, gates: Sequence[GateSpec], runs: Sequence[Measured]
) -> list[Calibrated]:
    """Each gate of the profile, in order, with its calibrated limit.

    Raises ProfileError if runs are of another profile, invalid or too few.
    """
    _check(profile, [run.summary for run in runs])
    results = [_read(gates, run) for run in runs]
    return [
        _calibrated(gate, [result[position] for result in results], runs)
        for position, gate in enumerate(gates)
    ]


def limit_of(values: Sequence[float], op: str, ends: Sequence[float] = ()) -> float:
    """The limit by RULE for an `op` of <= or >=; `ends` are those of the runs' intervals."""
    worst = _worst(values, op)
    beyond = max(max(values) - min(values), _MARGIN * abs(worst))
    if op == "<=":
        return _rounded(max([worst + beyond, *ends]), up=True)
    return _rounded(max(0.0, min([worst - beyond, *ends])), up=False)


def _check(profile: str, runs: Sequence[Summary]) -> None:
    problems = [
        f"{each.run.id}: a run of {each.run.profile}, not of {profile}"
        for each in runs
        if each.run.profile != profile
    ]
    problems += [
        f"{each.run.id}: invalid or aborted; exclude it" for each in runs if _is_void(each)
    ]
    ids = [each.run.id for each in runs]
    problems += [f"{name} is given twice" for name in sorted(set(ids)) if ids.count(name) > 1]
    if len(runs) < FEWEST_RUNS:
        problems.append(f"{len(runs)} runs are too few for a spread: at least {FEWEST_RUNS}")
    if problems:
        raise ProfileError(problems)


def _is_void(summary: Summary) -> bool:
    return summary.verdict in ("error", "invalid") or bool(summary.failures)


def _read(gates: Sequence[GateSpec], run: Measured) -> list[GateResult]:
    bare: Any = run.bare and msgspec.to_builtins(run.bare)
    return judge_gates(msgspec.to_builtins(run.summary), gates, bare)


def _calibrated(
    gate: GateSpec, results: Sequence[GateResult], runs: Sequence[Measured]
) -> Calibrated:
    if gate.op == "==" or gate.unit not in MEASURED_UNITS:
        return Calibrated(gate, gate.limit, gate.origin, "a contract")
    values = [result.value for result in results if result.value is not None]
    if len(values) < len(results):
        first = next(result for result in results if result.value is None)
        unread = (
            f"not a number in {len(results) - len(values)} of {len(results)} runs: {first.note}"
        )
        return Calibrated(gate, gate.limit, gate.origin, unread)
    ends = [each.interval[gate.op == "<="] for each in results if each.interval is not None]
    known = [end for end in ends if end is not None]
    limit = limit_of(values, gate.op, known)
    furthest = bool(known) and limit != limit_of(values, gate.op)
    summaries = [run.summary for run in runs]
    return Calibrated(gate, limit, _origin(values, gate, summaries, furthest=furthest))


def _origin(
    values: Sequence[float], gate: GateSpec, runs: Sequence[Summary], *, furthest: bool
) -> str:
    low, high = format_number(min(values)), format_number(max(values))
    seen = low if low == high else f"{low} to {high}"
    each = ", the worst of each run" if "*" in gate.metric else ""
    worst = _worst(values, gate.op)
    margin = "its quarter" if max(values) - min(values) <= _MARGIN * abs(worst) else "the spread"
    beyond = f"the worst {'+' if gate.op == '<=' else '-'} {margin}"
    if furthest:
        beyond = "the end of a run's own interval"
    return (
        f"Measured {seen} {gate.unit}{each}, in {len(runs)} runs, seeds {_seeds(runs)}, "
        f"on {_machine(runs)}; limit = {beyond}."
    )


def _worst(values: Sequence[float], op: str) -> float:
    return max(values) if op == "<=" else min(values)


def _seeds(runs: Sequence[Summary]) -> str:
    """Seeds as a range `11-15` if consecutive, else as a list."""
    seeds = sorted({summary.run.seed for summary in runs})
    if len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]}-{seeds[-1]}"
    return ", ".join(map(str, seeds))


def _machine(runs: Sequence[Summary]) -> str:
    def described(environment: Mapping[str, str]) -> str:
        cores = environment.get("cores", "?")
        return f"{cores} cores ({environment.get('processor', 'unknown processor')})"

    return " and ".join(sorted({described(summary.run.environment) for summary in runs}))


def _rounded(value: float, *, up: bool) -> float:
    if not value:
        return 0.0
    scale = 10.0 ** (math.floor(math.log10(value)) - _DIGITS + 1)
    steps = value / scale
    whole = math.ceil(steps - 1e-9) if up else math.floor(steps + 1e-9)
    return round(whole * scale, 9)
