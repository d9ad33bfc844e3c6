"""The page's section on what a pod costs: CPU and memory by component, and writes."""

from __future__ import annotations

from collections.abc import Sequence

from loaddriver.judge.gates import format_number
from loaddriver.judge.resources import ComponentUse, CpuTimeline, Resources
from loaddriver.report import axes, formatting
from loaddriver.report.charts import Chart, Line
from loaddriver.report.plots import PIXELS_PER_TICK, Plot, plot
from loaddriver.report.waits import BarSegment

# One tone for each of the largest components; the rest share the last.
_TONES = (1, 2, 3, 4, 5, 6, 7, 9)
_REST = 8


def lead(used: Resources) -> str:
    """The total, and how busy the machine was; or what is unknown."""
    busy = f"all cores were {formatting.share(used.machine_busy_share, 1)} busy."
    if used.peak_memory_bytes is not None:
        memory = f"{used.peak_memory_bytes / 2**30:.1f}\u202fGiB"
        busy += f" All processes together had {memory} at most, without pages of files."
    if used.unknown:
        return f"Unknown is the CPU of {', '.join(used.unknown)}, and so the total; {busy}"
    total = _milliseconds(used.cpu_seconds_per_pod)
    return (
        f"{total} of CPU for each of {formatting.count(used.pods)} pods, from the load's first "
        f"request to its last; {busy}"
    )


def component_rows(used: Resources) -> list[BarSegment]:
    """Each component: CPU by pod, share of the run's CPU, processes and peak memory."""
    return [
        BarSegment(
            name=name,
            percent=100 * each.cpu_share,
            tone=_TONES[position] if position < len(_TONES) else _REST,
            texts=_texts(each),
        )
        for position, (name, each) in enumerate(used.components.items())
    ]


def segments(used: Resources) -> list[BarSegment]:
    """The bar: all components, and what belongs to none as the rest."""
    rows = component_rows(used)
    rest = 100 - sum(row.percent for row in rows)
    if rest <= 0:
        return rows
    return [*rows, BarSegment(name="none of these", percent=round(rest, 2), tone=_REST, texts=())]


def write_rows(used: Resources) -> list[tuple[str, Sequence[str]]]:
    """Each kind of write, most frequent first."""
    ordered = sorted((used.writes or {}).values(), key=lambda each: -each.count)
    return [
        (
            each.what,
            [
                formatting.ABSENT if each.per_pod is None else format_number(each.per_pod),
                formatting.count(each.count),
                formatting.count(each.rejected) if each.rejected else formatting.ABSENT,
            ],
        )
        for each in ordered
    ]


def cpu_plot(used: Resources) -> Plot:
    """The run's and others' share of the machine's CPU over time."""
    parts = used.windows
    length = max(parts.seconds, default=1.0)
    lines = [
        Line("the run", _points(parts, parts.run_share), 1, filled=True),
        Line("others", _points(parts, parts.others_share), 2, filled=True),
    ]
    if any(parts.other_run_share):
        lines.append(Line("the other run of the pair", _points(parts, parts.other_run_share), 3))
    if any(parts.throttled_share):
        lines.append(Line("periods throttled by a quota", _points(parts, parts.throttled_share), 5))

    def chart(width: int) -> Chart:
        return Chart(
            alt_text="Share of the machine's CPU used by the run and by others over time",
            lines=lines,
            x=axes.clock(round(length), "time since the first request", width // PIXELS_PER_TICK),
            y=axes.percents("share of all cores"),
            stepped=True,
        )

    return plot(chart, 180, lines)


def _points(parts: CpuTimeline, shares: Sequence[float]) -> list[tuple[float, float]]:
    """A share from the begin of each window to its end."""
    return list(zip([0.0, *parts.seconds], [*shares, *shares[-1:]], strict=True))


def _texts(each: ComponentUse) -> list[str]:
    return [
        _milliseconds(each.cpu_seconds_per_pod),
        formatting.share(each.cpu_share, 1),
        formatting.count(each.processes),
        f"{each.peak_memory_bytes / 2**20:,.0f}\u202fMiB",
    ]


def _milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return formatting.ABSENT
    return f"{format_number(round(1000 * seconds, 2))}\u202fms"
