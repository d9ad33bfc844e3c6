"""Calibrates gates: limits from measured runs of one plan, by the rule of `limit_rule`.

Times, rates, CPU, memory and writes are measured. Other limits (a count, a share, an exact value)
are contracts and stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from loaddriver.errors import ProfileError
from loaddriver.judge.gates import GateResult, GateSpec, format_number, judge_gates
from loaddriver.judge.limit_rule import FALSE_ALARMS, LEAST_SD, POWER, expected, limit_of, log_sd
from loaddriver.judge.schema import Summary

RULE = (
    "the one-sided prediction limit that one more run of the same build exceeds in "
    f"{100 * FALSE_ALARMS:g} of 100 cases, with logarithms taken as normal and their standard "
    f"deviation as at least {LEAST_SD:g}, rounded to two digits"
)
FEWEST_RUNS = 3
MEASURED_UNITS = (
    "seconds",
    "pods per second",
    "bytes",
    "writes per pod",
    "times the bare run",
    "times the calibration task",
)


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


def _check(profile: str, runs: Sequence[Summary]) -> None:
    problems = [
        f"{each.run.id}: a run of {each.run.profile}, not of {profile}"
        for each in runs
        if each.run.profile != profile
    ]
    problems += [
        f"{each.run.id}: invalid or aborted; exclude it" for each in runs if _is_void(each)
    ]
    plans = {each.provenance.inputs["plan"] for each in runs if each.provenance is not None}
    if len(plans) > 1:
        problems.append("runs of different plans: limits are for one plan, so give one seed")
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
    if min(values) <= 0:
        zero = f"{format_number(min(values))} in a run, which has no logarithm"
        return Calibrated(gate, gate.limit, gate.origin, zero)
    summaries = [run.summary for run in runs]
    return Calibrated(gate, limit_of(values, gate.op), _origin(values, gate, summaries))


def _origin(values: Sequence[float], gate: GateSpec, runs: Sequence[Summary]) -> str:
    low, high = format_number(min(values)), format_number(max(values))
    seen = low if low == high else f"{low} to {high}"
    each = ", the worst of each run" if "*" in gate.metric else ""
    found = expected(len(values), round(log_sd(values), 3))
    factor = found.found_factor
    more, less = f"{100 * (factor - 1):.0f} % more", f"{100 * (1 - 1 / factor):.0f} % less"
    return (
        f"Measured {seen} {gate.unit}{each}, in {len(runs)} runs with seed {_seeds(runs)} on "
        f"{_machine(runs)}. Simulated: {100 * found.false_alarms:.1f} % of equal runs fail, and "
        f"{100 * POWER:g} % of those with {more if gate.op == '<=' else less}."
    )


def _seeds(runs: Sequence[Summary]) -> str:
    return ", ".join(map(str, sorted({summary.run.seed for summary in runs})))


def _machine(runs: Sequence[Summary]) -> str:
    def described(environment: Mapping[str, str]) -> str:
        cores = environment.get("cores", "?")
        return f"{cores} cores ({environment.get('processor', 'unknown processor')})"

    return " and ".join(sorted({described(summary.run.environment) for summary in runs}))
