"""The live view of a run: a panel on a terminal, a line every few seconds anywhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from loaddriver.judge.percentiles import AtLeast, Quantile

_LINE_INTERVAL_SECONDS = 5.0
_WIDTH, _BAR_WIDTH = 80, 37
_LABEL_WIDTH, _VALUE_WIDTH = 12, 23


@dataclass(frozen=True)
class Progress:
    """The progress of a run at one moment. None is unknown; `nodes` counts by state.

    `remaining_seconds` and `fraction_done` (0 to 1) are of the whole run. `p50` and `p99` are
    from due time to binding over all pods so far, including waiting ones. With `of_requests` the
    load creates CapacityRequests instead of pods, and an acknowledged one counts as bound; they
    count from their creation.
    """

    profile: str
    phase: str
    elapsed_seconds: float
    remaining_seconds: float | None
    fraction_done: float
    pods_planned: int
    pods_created: int
    pods_bound: int
    backlog: int
    binds_per_second: float
    p50: Quantile = None
    p99: Quantile = None
    nodes: Mapping[str, int] = field(default_factory=dict)
    shortfalls: int | None = None
    note: str = ""
    of_requests: bool = False

    @property
    def unit(self) -> str:
        """What is created."""
        return "requests" if self.of_requests else "pods"

    @property
    def done(self) -> str:
        """The final state of a unit."""
        return "acknowledged" if self.of_requests else "bound"


class View(Protocol):
    """Shows progress inside a `with` block."""

    def __enter__(self) -> View: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def show(self, progress: Progress) -> None:
        """Show the newest progress; called about twice a second."""
        ...

    def say(self, sentence: str) -> None:
        """Print a permanent line, such as the start of a phase."""
        ...


def view_on(stream: TextIO) -> View:
    """A panel if `stream` is a capable terminal, else plain lines."""
    console = Console(file=stream, highlight=False)
    if console.is_terminal and not console.is_dumb_terminal:
        return PanelView(console)
    return LineView(stream)


class PanelView:
    """Redraws a panel in place; sentences scroll above it."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> PanelView:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def show(self, progress: Progress) -> None:
        """Draw the newest state."""
        self._live.update(panel(progress), refresh=True)

    def say(self, sentence: str) -> None:
        """Print above the panel."""
        self._live.console.print(Text(sentence))


class LineView:
    """Prints a line at most every five seconds, and at each change of phase."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._phase = ""
        self._printed_at = -_LINE_INTERVAL_SECONDS

    def __enter__(self) -> LineView:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stream.flush()

    def show(self, progress: Progress) -> None:
        """Print the state if a line is due."""
        due = progress.elapsed_seconds - self._printed_at >= _LINE_INTERVAL_SECONDS
        if due or progress.phase != self._phase:
            self._phase, self._printed_at = progress.phase, progress.elapsed_seconds
            self.say(line(progress))

    def say(self, sentence: str) -> None:
        """Print immediately."""
        self._stream.write(f"{sentence}\n")
        self._stream.flush()


def line(progress: Progress) -> str:
    """The state as one line of `name value` pairs in a fixed order."""
    shortfalls = "-" if progress.shortfalls is None else str(progress.shortfalls)
    parts = [
        f"{_clock(progress.elapsed_seconds):>6}  {progress.phase}",
        f"created {progress.pods_created}/{progress.pods_planned}",
        f"{progress.done} {progress.pods_bound}",
        f"backlog {progress.backlog}",
        f"{progress.done}/s {progress.binds_per_second:.1f}",
        f"due->{progress.done} p50 {_quantile(progress.p50)}",
        f"p99 {_quantile(progress.p99)}",
        f"nodes {_nodes(progress.nodes)}",
        f"shortfalls {shortfalls}",
        *([progress.note] if progress.note else []),
    ]
    return "  ".join(parts)


def panel(progress: Progress) -> RenderableType:
    """The state as a panel of at most 80 columns."""
    shortfalls = "unknown" if progress.shortfalls is None else f"{progress.shortfalls:,}"
    waiting = Text(f"{progress.backlog:,} {progress.unit}", "yellow" if progress.backlog else "")
    table = Table.grid(padding=(0, 2))
    for width, style in ((_LABEL_WIDTH, "dim"), (_VALUE_WIDTH, "")) * 2:
        table.add_column(width=width, style=style, no_wrap=True)
    created = f"{progress.pods_created:,} of {progress.pods_planned:,}"
    rate = f"{progress.binds_per_second:,.1f} {progress.unit}/s"
    table.add_row("created", created, "rate", rate)
    table.add_row(
        progress.done, f"{progress.pods_bound:,}", "p50 from due", _quantile(progress.p50)
    )
    table.add_row("backlog", waiting, "p99 from due", _quantile(progress.p99))
    table.add_row("nodes", _nodes(progress.nodes), "shortfalls", shortfalls)
    body: list[RenderableType] = [_headline(progress), table]
    if progress.note:
        body.append(Text(progress.note, "dim", no_wrap=True, overflow="ellipsis"))
    return Group(*body)


def _headline(progress: Progress) -> RenderableType:
    names = Text.assemble((progress.profile, "bold"), "  ", (progress.phase, "bold cyan"))
    names.truncate(_WIDTH, overflow="ellipsis")
    names.no_wrap = True
    remaining = progress.remaining_seconds
    ahead = "" if remaining is None else f", about {_clock(remaining)} left"
    grid = Table.grid(padding=(0, 2))
    grid.add_column(width=_BAR_WIDTH)
    grid.add_column(no_wrap=True)
    grid.add_row(
        ProgressBar(total=1, completed=progress.fraction_done, width=_BAR_WIDTH),
        f"{_clock(progress.elapsed_seconds)}{ahead}",
    )
    return Group(names, grid)


def _quantile(value: Quantile) -> str:
    if isinstance(value, AtLeast):
        return f">={value.at_least:.2f}s"
    return "-" if value is None else f"{value:.2f}s"


def _nodes(nodes: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in nodes.items() if count) or "none"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
