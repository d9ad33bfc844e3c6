"""Line charts as inline SVG: pure functions from data to markup, styled by the page's CSS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from loaddriver.report.axes import Axis

Points = Sequence[tuple[float, float]]
_TOP, _BOTTOM, _LEFT, _RIGHT = 26, 40, 50, 16
_DIGIT_WIDTH = 7.2


@dataclass(frozen=True)
class Line:
    """A line; `tone` is the number of its colour in the style sheet, 0 the strongest."""

    name: str
    points: Points
    tone: int
    filled: bool = False


@dataclass(frozen=True)
class Range:
    """A y range that changes over time, such as bounds."""

    name: str
    low: Points
    high: Points
    tone: int


@dataclass(frozen=True)
class Dot:
    """A single value, with a text that shows when it is pointed at."""

    x: float
    y: float
    text: str
    tone: int


@dataclass(frozen=True)
class Marker:
    """A labelled value on the x axis, such as a percentile."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class PlotBand:
    """A labelled x range, such as the soak, optionally shaded."""

    low: float
    high: float
    text: str
    shaded: bool = True


@dataclass(frozen=True)
class Size:
    """Width and height of a chart in CSS pixels."""

    width: int
    height: int


@dataclass(frozen=True)
class Chart:
    """The content of a chart; `alt_text` is for screen readers."""

    alt_text: str
    lines: Sequence[Line]
    x: Axis
    y: Axis
    marks: Sequence[Marker] = ()
    bands: Sequence[PlotBand] = ()
    stepped: bool = False
    ranges: Sequence[Range] = ()
    dots: Sequence[Dot] = ()


def draw(chart: Chart, size: Size) -> Markup:
    """The chart as an <svg> element."""
    return _Canvas(chart, size).svg()


class _Canvas:
    """A drawing of a chart at a size."""

    def __init__(self, chart: Chart, size: Size) -> None:
        self._chart, self._size = chart, size
        longest = max((len(tick.label) for tick in chart.y.ticks), default=0)
        self._left = max(_LEFT, 14 + longest * _DIGIT_WIDTH)
        self._right, self._floor = size.width - _RIGHT, size.height - _BOTTOM

    def svg(self) -> Markup:
        body = Markup("").join(
            [
                *self._bands(),
                *self._y_axis(),
                *self._x_axis(),
                *self._ranges(),
                *self._lines(),
                *self._dots(),
                *self._marks(),
            ]
        )
        return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
            self._size.width, self._size.height, self._chart.alt_text, body
        )

    def _x(self, value: float) -> float:
        return self._left + (self._right - self._left) * self._chart.x.fraction(value)

    def _y(self, value: float) -> float:
        return self._floor - (self._floor - _TOP) * self._chart.y.fraction(value)

    def _bands(self) -> Iterator[Markup]:
        for band in self._chart.bands:
            x, end = self._x(band.low), self._x(band.high)
            kind = "band" if band.shaded else "plain"
            yield Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>').format(
                kind, _n(x), _TOP, _n(end - x), self._floor - _TOP
            )
            if end - x > max(40, 12 + len(band.text) * _DIGIT_WIDTH):
                yield _text(x + 6, _TOP + 15, band.text, "note", "start")

    def _y_axis(self) -> Iterator[Markup]:
        yield _text(0, 12, self._chart.y.label, "axis", "start")
        for tick in self._chart.y.ticks:
            y = self._y(tick.value)
            kind = "base" if tick.value == self._chart.y.low else "grid"
            yield _line(self._left, y, self._right, y, kind)
            yield _text(self._left - 8, y + 4, tick.label, "tick", "end")

    def _x_axis(self) -> Iterator[Markup]:
        for tick in self._chart.x.ticks:
            x = self._x(tick.value)
            yield _line(x, self._floor, x, self._floor + 4, "base")
            half = len(tick.label) * _DIGIT_WIDTH / 2
            anchor = "end" if x + half > self._size.width else "middle"
            yield _text(
                x if anchor == "middle" else self._right,
                self._floor + 17,
                tick.label,
                "tick",
                anchor,
            )
        yield _text(self._right, self._size.height - 4, self._chart.x.label, "axis", "end")

    def _ranges(self) -> Iterator[Markup]:
        for each in self._chart.ranges:
            back = [f"V{_n(self._y(y))}H{_n(self._x(x))}" for x, y in reversed(each.low)]
            end = f"H{_n(self._x(each.high[-1][0]))}" if each.high else ""
            outline = f"{self._path(each.high)}{end}{''.join(back)}Z"
            yield Markup('<path class="fill t{}" d="{}"/>').format(each.tone, outline)
            for edge in (each.low, each.high):
                path = self._path(edge)
                yield Markup('<path class="edge t{}" d="{}"/>').format(each.tone, path)

    def _lines(self) -> Iterator[Markup]:
        for line in sorted(self._chart.lines, key=lambda line: -line.tone):
            path = self._path(line.points)
            if line.filled and line.points:
                first = self._x(line.points[0][0])
                closed = f"{path}V{_n(self._floor)}H{_n(first)}Z"
                yield Markup('<path class="fill t{}" d="{}"/>').format(line.tone, closed)
            yield Markup('<path class="line t{}" d="{}"/>').format(line.tone, path)

    def _path(self, points: Points) -> str:
        """A path through the points: straight, or stepped if values hold."""
        parts: list[str] = []
        for x, y in points:
            at, to = _n(self._x(x)), _n(self._y(y))
            if not parts:
                parts.append(f"M{at} {to}")
            elif self._chart.stepped:
                parts.append(f"H{at}V{to}")
            else:
                parts.append(f"L{at} {to}")
        return "".join(parts)

    def _dots(self) -> Iterator[Markup]:
        for dot in self._chart.dots:
            yield Markup(
                '<circle class="point t{}" cx="{}" cy="{}" r="3.5"><title>{}</title></circle>'
            ).format(dot.tone, _n(self._x(dot.x)), _n(self._y(dot.y)), dot.text)

    def _marks(self) -> Iterator[Markup]:
        for mark in self._chart.marks:
            x, y = self._x(mark.x), self._y(mark.y)
            yield _line(x, y, x, self._floor, "drop")
            yield Markup('<circle class="dot" cx="{}" cy="{}" r="4"/>').format(_n(x), _n(y))
            left = x + len(mark.text) * _DIGIT_WIDTH + 12 > self._right
            yield _text(
                x - 9 if left else x + 9,
                y + (-8 if left else 16),
                mark.text,
                "mark",
                "end" if left else "start",
            )


def _line(x: float, y: float, to_x: float, to_y: float, kind: str) -> Markup:
    return Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(
        kind, _n(x), _n(y), _n(to_x), _n(to_y)
    )


def _text(x: float, y: float, text: str, kind: str, anchor: str) -> Markup:
    return Markup('<text class="{}" x="{}" y="{}" text-anchor="{}">{}</text>').format(
        kind, _n(x), _n(y), anchor, escape(text)
    )


def _n(value: float) -> str:
    """A coordinate with one decimal."""
    return f"{value:.1f}".removesuffix(".0")
