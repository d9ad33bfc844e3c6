"""Gates as the text of an expect.yaml, formatted as if written by hand."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

import yaml

from loaddriver.judge.calibrate import RULE, Calibrated
from loaddriver.judge.schema import Summary

_WIDTH = 96


def expectations_text(calibrated: Sequence[Calibrated], runs: Sequence[Summary]) -> str:
    """The whole file, with a comment on the runs of its measured limits."""
    header = (
        f"Measured limits were set by `loaddriver calibrate`: {RULE}. "
        f"Runs: {', '.join(summary.run.id for summary in runs)}. "
        "Counts, shares and exact values are contracts, which no measurement changes."
    )
    comment = textwrap.wrap(
        header, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
    )
    gates = [line for each in calibrated for line in _gate_lines(each)]
    return "\n".join([*comment, "gates:", *gates]) + "\n"


def _gate_lines(calibrated: Calibrated) -> Iterator[str]:
    gate = calibrated.gate
    whole = calibrated.limit == int(calibrated.limit)
    yield from _lines("name", gate.name, first=True)
    yield from _lines("metric", gate.metric)
    yield f'    op: "{gate.op}"'
    yield f"    limit: {int(calibrated.limit) if whole else calibrated.limit!r}"
    yield from _lines("unit", gate.unit)
    if gate.ratio_to is not None:
        yield from _lines("ratioTo", gate.ratio_to)
    yield from _lines("origin", calibrated.origin)


def _lines(key: str, text: str, *, first: bool = False) -> Iterator[str]:
    written = yaml.safe_dump({key: text}, width=_WIDTH - 4, allow_unicode=True).splitlines()
    for position, line in enumerate(written):
        yield f"{'  - ' if first and position == 0 else '    '}{line}"
