"""The page's sections on self-checks, measurement and load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from loaddriver.judge.gates import format_number
from loaddriver.judge.schema import SelfCheck, Summary
from loaddriver.report import formatting

_WORKERS = "workers"
WORKER_COLUMNS = {
    "Sent": "requestsSent",
    "Failed": "requestsFailed",
    "Repeated": "requestsRetried",
    "Late, p99": "p99LatenessSeconds",
    "Late, max": "maxLatenessSeconds",
    "CPU": "cpuSeconds",
    "Cores, max": "coresMax10s",
    "Clock off by at most": "clockOffsetAtMostSeconds",
}
"""The columns of the table of workers, and the numbers in them."""


@dataclass(frozen=True)
class CheckRow:
    """A row of the self-checks; `verdict` is pass, fail, or "" without a limit."""

    what: str
    value: str
    limit: str
    unit: str
    verdict: str
    reason: str


def check_rows(summary: Summary) -> list[CheckRow]:
    """Self-checks above their limit first, those without a limit last."""
    rows = [_row(check) for check in summary.self_checks.values()]
    return sorted(rows, key=lambda row: ("fail", "pass", "").index(row.verdict))


def measurement(summary: Summary) -> list[tuple[str, str]]:
    """The sources of the timestamps."""
    audit, clock = summary.audit, summary.audit.clock
    source = "API servers' audit logs" if audit.available else "watch receipts"
    lag = "not comparable"
    if clock.median_seconds is not None and clock.p99_seconds is not None:
        lag = f"{formatting.seconds(clock.median_seconds)} median, "
        lag += f"{formatting.seconds(clock.p99_seconds)} p99"
    return [
        ("Clock", source),
        ("Audit lines read", formatting.count(audit.lines)),
        ("Watch receipt after the log", lag),
        *_stamp_error(summary),
        ("Watch events", formatting.count(audit.watch.events)),
        ("Watches resumed", formatting.count(audit.watch.resumed)),
        ("Bound by", _counts(audit.bound_by)),
        ("Refused requests", _counts(audit.failed_requests)),
    ]


def _stamp_error(summary: Summary) -> Iterator[tuple[str, str]]:
    error = summary.audit.stamp_error
    if error is not None:
        found = (error.p50_seconds, error.p99_seconds, error.max_seconds)
        texts = [formatting.ABSENT if n is None else formatting.seconds(n) for n in found]
        measured = f"{texts[0]} median, {texts[1]} p99, {texts[2]} max of {error.samples} writes"
        yield "Receipts are late by at most", measured


def flat(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Flatten nested numbers, with readable names."""
    return [(formatting.words(name), value) for name, value in _flat(values, "")]


def load(summary: Summary) -> list[tuple[str, str]]:
    """The numbers of the whole load, with readable names."""
    return flat({name: value for name, value in summary.load.items() if name != _WORKERS})


def worker_rows(summary: Summary) -> list[tuple[str, list[str]]]:
    """The name of each worker and its cells; empty if one process played the load."""
    return [
        (name, [_cell(key, worker.get(key)) for key in WORKER_COLUMNS.values()])
        for name, worker in summary.load.get(_WORKERS, {}).items()
    ]


def of_section(section: Any) -> list[tuple[str, str]]:
    """The numbers of a section of the summary."""
    return flat(msgspec.to_builtins(section))


def _cell(key: str, value: float | None) -> str:
    if value is None:
        return formatting.ABSENT
    return (
        formatting.count(value) if key.startswith("requests") else formatting.plain_seconds(value)
    )


def _row(check: SelfCheck) -> CheckRow:
    has_limit = check.limit is not None
    return CheckRow(
        what=f"{check.what[:1].upper()}{check.what[1:]}",
        value=formatting.ABSENT if check.value is None else format_number(check.value),
        limit="" if check.limit is None else f"\u2264 {format_number(check.limit)}",
        unit=check.unit,
        verdict=("pass" if check.within else "fail") if has_limit else "",
        reason=check.reason if check.value is not None else f"Not measured. {check.reason}",
    )


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{key}", format_number(value)
        else:
            yield f"{prefix}{key}", formatting.ABSENT if value is None else str(value)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name}: {formatting.count(n)}" for name, n in counts.items()) or "none"
