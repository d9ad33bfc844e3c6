"""Formats numbers, times and quantiles for display."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from loaddriver.judge.percentiles import AtLeast, Interval, Quantile

ABSENT = "\u2013"
_NARROW_SPACE = "\u202f"


def count(value: float | None) -> str:
    """An integer with thousands separators."""
    return ABSENT if value is None else f"{value:,.0f}"


def quantile(value: Quantile) -> str:
    """A quantile in seconds, without its unit; a lower bound is marked."""
    if isinstance(value, AtLeast):
        return f"\u2265{_NARROW_SPACE}{plain_seconds(value.at_least)}"
    return ABSENT if value is None else plain_seconds(value)


def plain_seconds(value: float) -> str:
    """Seconds without unit, with decimals by size."""
    size = abs(value)
    return f"{value:,.{3 if size < 1 else 2 if size < 100 else 1}f}"


def spoken_quantile(value: Quantile) -> str:
    """A quantile with its unit."""
    if isinstance(value, AtLeast):
        return f"\u2265{_NARROW_SPACE}{seconds(value.at_least)}"
    return ABSENT if value is None else seconds(value)


def interval(ends: Interval) -> str:
    """Both ends of an interval with unit; an open one has no upper end."""
    low, high = ends
    if isinstance(low, float) and isinstance(high, float):
        return f"{seconds(low)} to {seconds(high)}"
    return spoken_quantile(low)


def plain_interval(ends: Interval) -> str:
    """Both ends of an interval in seconds, without unit."""
    low, high = ends
    return f"{quantile(low)}\u2013{quantile(high)}"


def seconds(value: float) -> str:
    """A duration in a suitable unit."""
    size = abs(value)
    if size < 0.9995:
        return f"{value * 1000:.0f}{_NARROW_SPACE}ms"
    if size < 600:
        return f"{value:.{1 if size >= 9.995 else 2}f}{_NARROW_SPACE}s"
    return clock(value)


def clock(value: float) -> str:
    """A duration as hours, minutes and seconds: `6:04` or `1:02:03`."""
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def share(part: float, whole: float) -> str:
    """A percentage; 100 and 0 are shown for exact values only."""
    if not whole:
        return ABSENT
    percent = 100 * part / whole
    if part not in (0, whole):
        percent = min(max(percent, 0.1), 99.9)
    return f"{percent:.1f}".removesuffix(".0") + f"{_NARROW_SPACE}%"


def moment(unix_seconds: float) -> str:
    """A date and time in UTC."""
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def words(key: str) -> str:
    """A camelCase key as words: `rollupSendSeconds.p99` is `rollup send seconds, p99`."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", key.replace(".", ", "))
    return " ".join(w if w.isupper() and len(w) > 1 else w.lower() for w in spaced.split(" "))
