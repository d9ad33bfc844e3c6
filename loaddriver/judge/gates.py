"""Gates: limits on numbers of the summary. What cannot be read has failed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

_HOLDS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
}
_READS_AS = {"<=": "at most", ">=": "at least", "==": "exactly"}


class Limit(Protocol):
    """A gate as a profile's expectations give it; `metric` is a dotted path into the summary."""

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


class GateResult(msgspec.Struct, frozen=True):
    """A gate and how it went; `value` is None where there is no such number, see `note`."""

    name: str
    metric: str
    value: float | None
    op: str
    limit: float
    unit: str
    verdict: str
    origin: str
    note: str = ""

    @property
    def passed(self) -> bool:
        """Whether the gate holds."""
        return self.verdict == "pass"

    @property
    def sentence(self) -> str:
        """What came out against what was asked, for people."""
        came = self.note if self.value is None else f"{figure(self.value)} {self.unit}"
        asked = f"{_READS_AS[self.op]} {figure(self.limit)} {self.unit}"
        return f"{self.name[:1].upper()}{self.name[1:]}: {came}; the limit is {asked}."


def judge_gates(summary: Any, limits: Sequence[Limit]) -> list[GateResult]:
    """Each limit against the summary (as plain dicts and lists), in the given order."""
    return [_judge(summary, limit) for limit in limits]


def figure(value: float) -> str:
    """A number as people write it: thousands apart, and no more decimals than its size needs."""
    size = abs(value)
    text = f"{value:,.{4 if size < 1 else 3 if size < 10 else 2 if size < 1000 else 1}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _judge(summary: Any, limit: Limit) -> GateResult:
    value, note = _read(summary, limit.metric)
    holds = value is not None and _HOLDS[limit.op](value, limit.limit)
    return GateResult(
        name=limit.name,
        metric=limit.metric,
        value=value,
        op=limit.op,
        limit=limit.limit,
        unit=limit.unit,
        verdict="pass" if holds else "fail",
        origin=limit.origin,
        note=note,
    )


def _read(summary: Any, path: str) -> tuple[float | None, str]:
    found = summary
    for key in path.split("."):
        if not isinstance(found, Mapping) or key not in found:
            return None, f"this run's summary has no {path}"
        found = found[key]
    if isinstance(found, Mapping) and "atLeast" in found:
        least = figure(found["atLeast"])
        return None, f"at least {least}, too many pods were never bound to say more"
    if found is None:
        return None, f"{path} was not measured"
    if isinstance(found, bool) or not isinstance(found, int | float) or found != found:
        return None, f"{path} is not a number"
    return float(found), ""
