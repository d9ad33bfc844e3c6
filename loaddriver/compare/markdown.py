"""A comparison as a comment on a pull request: Markdown of at most 60 lines."""

from __future__ import annotations

from collections.abc import Iterator

from loaddriver.compare.comparison import Comparison, EndpointResult, Fact, Side
from loaddriver.compare.wording import event_sentence, percent, speed_sentence, tail_text

MARKER = "<!-- loaddriver compare -->"
"""The first line: a bot finds its earlier comment by it, and updates that."""
MOST_LINES = 60
_DIGITS = 12
_HEADLINES = {
    "regression": "Regression",
    "not worse": "Not worse",
    "not enough data": "Not enough data",
    "too many voids": "Too many void runs",
}
_WHY_LINES, _WARNING_LINES, _FACT_LINES, _DIFF_LINES = 8, 6, 6, 8


def render_markdown(found: Comparison) -> str:
    """The comment; what does not fit is in comparison.json and comparison.html."""
    lines = [
        MARKER,
        f"## {_HEADLINES[found.verdict]}: {_side(found.head)} compared with {_side(found.base)}",
        "",
        *_limited([f"> **{_plain(each)}**" for each in found.warnings], _WARNING_LINES, "warnings"),
        *([""] if found.warnings else []),
        *_limited([f"- {_plain(each)}" for each in found.why], _WHY_LINES, "reasons"),
        "",
        *_table(found),
        "",
        *_events(found),
        *_facts(found.facts),
        *_how(found),
    ]
    return "\n".join(lines) + "\n"


def _table(found: Comparison) -> Iterator[str]:
    yield "| Endpoint | BASE | HEAD | Change | Verdict | Where |"
    yield "|---|---:|---:|---:|---|---|"
    for each in found.endpoints:
        cells = (
            f"{each.name} ({each.unit})",
            _value(each.base_mean),
            _value(each.head_mean),
            _change(each),
            _verdict(each),
            each.attributed or "",
        )
        yield f"| {' | '.join(cells)} |"


def _events(found: Comparison) -> Iterator[str]:
    happened = [each for each in found.events if each.base_count or each.head_count]
    for each in happened:
        yield f"- {event_sentence(each, found.pairs)}: p {tail_text(each.tail)}"
    if found.pairs and not happened:
        yield "- No pod was left unbound or withdrawn, and no gang incomplete, on either side."


def _facts(facts: list[Fact]) -> Iterator[str]:
    lines_left = _DIFF_LINES  # of the first that changed: the comment has 60 lines
    for fact in facts[:_FACT_LINES]:
        yield f"- {fact.name}: {fact.sentence}"
        if fact.changed and fact.lines and lines_left:
            yield "```diff"
            yield from fact.lines[:lines_left]
            yield "```"
            lines_left = 0


def _how(found: Comparison) -> Iterator[str]:
    errors, voids = found.errors, found.voids
    yield f"- {speed_sentence(found.speed)}"
    yield ""
    yield (
        f"{found.profile}, seed {found.seed}, {found.pairs} pairs, machine "
        f"{found.machine or 'unknown'}; {voids.head} runs of HEAD and {voids.base} of BASE were "
        f"void. Least effect {errors.least_effect_percent:g} %. Equal systems are called a "
        f"regression in at most {100 * errors.family:g} % of sessions, with looks after "
        f"{', '.join(map(str, errors.looks))} pairs. Session {found.session}."
    )
    if both := [each for each in found.base.differs if each in found.head.differs]:
        yield f"Both sides with {', '.join(map(_plain, both))}."


def _side(side: Side) -> str:
    known = f" ({side.revision[:_DIGITS]}{' + changes' if side.dirty else ''})"
    return f"{_plain(side.label)}{known if side.revision else ''}"


def _change(each: EndpointResult) -> str:
    if each.effect_percent is None or each.interval_percent is None:
        return "-"
    low, high = map(percent, each.interval_percent)
    return f"{percent(each.effect_percent)} ({low} to {high})"


def _verdict(each: EndpointResult) -> str:
    if each.pairs_to_settle is not None:
        return f"{each.verdict}; about {each.pairs_to_settle} pairs would do"
    return f"**{each.verdict}**" if each.verdict == "regression" else each.verdict


def _value(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _limited(lines: list[str], most: int, what: str) -> list[str]:
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], f"- and {len(lines) - most + 1} more {what}"]


def _plain(text: str) -> str:
    """On one line: a table's cell or a heading cannot have more."""
    return " ".join(text.split()).replace("|", "/")
