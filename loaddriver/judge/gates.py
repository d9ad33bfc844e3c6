"""Gates: limits on numbers of the summary. A gate without a number fails.

A `*` in a metric's path matches every name: `archetypes.*.bindLatencySeconds.p99` is one gate that
must hold for each archetype. A gate with `ratioTo: bare` limits the ratio to the bare run's number,
one with `ratioTo: calibration` the ratio to the CPU seconds of a fixed task on the same machine.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

_HOLDS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
}
OPERATOR_WORDS = {"<=": "at most", ">=": "at least", "==": "exactly"}
_NAMED = 3
_EACH = "*"
_CALIBRATION = ("provenance", "machine", "calibrationSeconds")


class GateSpec(Protocol):
    """A gate of a profile's expectations; `metric` is a dotted path into the summary."""

    @property
    def name(self) -> str: ...

    @property
    def metric(self) -> str: ...

    @property
    def op(self) -> str: ...

    @property
    def limit(self) -> float: ...

    @property
    def unit(self) -> str: ...

    @property
    def origin(self) -> str: ...

    @property
    def ratio_to(self) -> str | None: ...


Ends = tuple[float | None, float | None]
"""Both ends of a 95 % interval; None for an open one."""


class Reading(msgspec.Struct, frozen=True):
    """One number of the summary; `value` is None if it is not a number, see `note`.

    `interval` is its confidence interval, if the summary has one. That of a ratio combines the
    opposite ends of both runs, which is conservative.
    """

    name: str
    value: float | None
    passed: bool
    note: str = ""
    interval: Ends | None = None


class GateResult(msgspec.Struct, frozen=True):
    """The result of a gate; `value` is None if there is no such number, see `note`.

    A gate with a wildcard has a reading for every match; it holds if all do, and its `value`,
    `note` and `interval` are those of the worst.
    """

    name: str
    metric: str
    value: float | None
    op: str
    limit: float
    unit: str
    verdict: str
    origin: str
    note: str = ""
    each: list[Reading] = []
    interval: Ends | None = None

    @property
    def passed(self) -> bool:
        """Whether the gate holds."""
        return self.verdict == "pass"

    @property
    def sentence(self) -> str:
        """The outcome and the limit as a sentence."""
        asked = f"{OPERATOR_WORDS[self.op]} {format_number(self.limit)} {self.unit}"
        return (
            f"{self.name[:1].upper()}{self.name[1:]}: {self._outcome_text()}; the limit is {asked}."
        )

    def _outcome_text(self) -> str:
        missed = [reading for reading in self.each if not reading.passed]
        if not missed:
            return self._spoken(self.value, self.note)
        texts = [f"{each.name} {self._spoken(each.value, each.note)}" for each in missed[:_NAMED]]
        more = f" and {len(missed) - _NAMED} more" if len(missed) > _NAMED else ""
        return f"{', '.join(texts)}{more}"

    def _spoken(self, value: float | None, note: str) -> str:
        return note if value is None else f"{format_number(value)} {self.unit}"


def judge_gates(summary: Any, limits: Sequence[GateSpec], bare: Any = None) -> list[GateResult]:
    """Judge each gate by the summary (as plain dicts and lists), in the given order.

    `bare` is the summary of the paired bare run in the same form, or None.
    """
    return [_judge(summary, bare, limit) for limit in limits]


def format_number(value: float) -> str:
    """A number with thousands separators, and no more decimals than its size needs."""
    size = abs(value)
    text = f"{value:,.{4 if size < 1 else 3 if size < 10 else 2 if size < 1000 else 1}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _judge(summary: Any, bare: Any, limit: GateSpec) -> GateResult:
    asked = limit.metric.split(".")
    readings = [_reading(summary, bare, limit, path) for path in _expanded(summary, asked)]
    worst = _worst(readings, limit.op) if readings else _no_reading(limit)
    return GateResult(
        name=limit.name,
        metric=limit.metric,
        value=worst.value,
        op=limit.op,
        limit=limit.limit,
        unit=limit.unit,
        verdict="pass" if worst.passed else "fail",
        origin=limit.origin,
        note=_note(worst, readings),
        each=readings if _EACH in asked else [],
        interval=worst.interval,
    )


def _expanded(found: Any, keys: Sequence[str]) -> Iterator[list[str]]:
    """The paths that match a metric."""
    if not keys:
        yield []
        return
    first, *rest = keys
    inside = found if isinstance(found, Mapping) else {}
    for key in list(inside) if first == _EACH else [first]:
        yield from ([key, *more] for more in _expanded(inside.get(key), rest))


def _reading(summary: Any, bare: Any, limit: GateSpec, path: Sequence[str]) -> Reading:
    value, note = _read(summary, path, "" if limit.ratio_to else limit.unit)
    interval = _interval(summary, path)
    if value is not None and limit.ratio_to == "bare":
        value, note = _bare_ratio(value, bare, path)
        interval = _ratio_interval(interval, _interval(bare, path))
    elif value is not None and limit.ratio_to == "calibration":
        value, note = _ratio(value, summary, _CALIBRATION)
        interval = None  # nobody knows that of the calibration
    holds = value is not None and _HOLDS[limit.op](value, limit.limit)
    known = None if value is None else interval
    return Reading(_place(path, limit.metric), value, holds, note, known)


def _bare_ratio(value: float, bare: Any, path: Sequence[str]) -> tuple[float | None, str]:
    if bare is None:
        return None, "this run has no bare run, so there is no ratio"
    if bare["verdict"] in ("error", "invalid"):
        return None, f"the bare run is {bare['verdict']}, so there is no ratio"
    found, note = _ratio(value, bare, path)
    return found, f"in the bare run: {note}" if note else ""


def _ratio(value: float, base: Any, path: Sequence[str]) -> tuple[float | None, str]:
    """The ratio to the number at `path` of a summary, or None and the reason."""
    divisor, note = _read(base, path, "")
    if divisor is None:
        return None, note
    return (value / divisor, "") if divisor else (None, "it is 0, so there is no ratio")


def _ratio_interval(ours: Ends | None, theirs: Ends | None) -> Ends | None:
    if ours is None or theirs is None:
        return None
    (low, high), (least, most) = ours, theirs
    return low / most if low and most else 0.0, high / least if high and least else None


def _place(path: Sequence[str], metric: str) -> str:
    """The names that the metric's wildcards match in this path."""
    pairs = zip(path, metric.split("."), strict=True)
    return " ".join(key or "unnamed" for key, asked in pairs if asked == _EACH)


def _worst(readings: Sequence[Reading], op: str) -> Reading:
    """The worst reading: without a number, else missed, else nearest to the limit."""
    sign = -1 if op == ">=" else 1
    return max(
        readings,
        key=lambda each: (each.value is None, not each.passed, sign * (each.value or 0.0)),
    )


def _note(worst: Reading, readings: Sequence[Reading]) -> str:
    if len(readings) < 2:
        return worst.note
    missed = sum(not each.passed for each in readings)
    texts = f"{worst.name}: {worst.note}" if worst.note else f"the worst is {worst.name}"
    return f"{texts}; {missed} of {len(readings)} missed" if missed else texts


def _no_reading(limit: GateSpec) -> Reading:
    return Reading("", None, False, f"this run's summary has nothing at {limit.metric}")


def _read(summary: Any, path: Sequence[str], unit: str) -> tuple[float | None, str]:
    """The number at a path without wildcards, or None and the reason."""
    found, named = summary, ".".join(path)
    for key in path:
        if not isinstance(found, Mapping) or key not in found:
            return None, f"this run's summary has no {named}"
        found = found[key]
    if isinstance(found, Mapping) and "atLeast" in found:
        return None, _bound(found, unit)
    if found is None:
        return None, f"{named} was not measured"
    if isinstance(found, bool) or not isinstance(found, int | float) or found != found:
        return None, f"{named} is not a number"
    return float(found), ""


def _interval(summary: Any, path: Sequence[str]) -> Ends | None:
    """The interval of the number at a path."""
    *parents, last = path
    found = summary
    for key in [*parents, f"{last}Interval"]:
        found = found.get(key) if isinstance(found, Mapping) else None
    if not found or not isinstance(found[0], int | float):
        return None
    return float(found[0]), float(found[1]) if isinstance(found[1], int | float) else None


def _bound(found: Mapping[str, Any], unit: str) -> str:
    least = f"at least {format_number(found['atLeast'])} {unit}".rstrip()
    if found.get("requiredSampleSize"):
        has = f"effective sample size {format_number(found.get('effectiveSampleSize', 0))}"
        return f"{least}; {has}, required {format_number(found['requiredSampleSize'])}"
    return f"{least}; too many waits are censored"
