"""Made-up lines of a history, and the results folder of a made-up run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from loaddriver.compare.measures import ENDPOINTS
from loaddriver.history.record import SCHEMA, Line, LineMachine
from loaddriver.judge.schema import Summary
from loaddriver.report.results import seal_results, write_results
from tests.report.report_rig import Run

MACHINE = LineMachine(
    id="0123456789abcdef", calibration_seconds=0.0123, processor="Example 9000", cores="2"
)


def line(number: int, change: float = 1.0, **fields: Any) -> Line:
    """The run of that number, of a revision of its own; `change` multiplies every endpoint."""
    wobble = 1 + 0.004 * ((7 * number) % 5 - 2)
    known: dict[str, Any] = {
        "schema": SCHEMA,
        "run": f"smoke-20261120-{100000 + number}",
        "profile": "smoke",
        "started_unix_seconds": 1_790_000_000.0 + 3600 * number,
        "revision": f"{number:04x}".ljust(40, "0"),
        "dirty": False,
        "verdict": "pass",
        "machine": MACHINE,
        "inputs": {"catalog": "c", "gates": "g", "plan": "p", "profile": "r"},
        "versions": {"bigfleet": f"0.1.{number}", "kubernetes": "1.36.3"},
        "pods": {"planned": 200, "created": 200, "bound": 200},
        "events": {"gangsNotWhole": 0, "neverBound": 0, "withdrawn": 0},
        "endpoints": {
            each.key: (1 + place) * wobble * change for place, each in enumerate(ENDPOINTS)
        },
    }
    return Line(**{**known, **fields})


def stored(count: int = 8) -> list[Line]:
    """Runs of successive revisions of one build quality."""
    return [line(number) for number in range(count)]


def results(folder: Path, run: Run, summary: Summary | None = None) -> Path:
    """A sealed results folder of this run."""
    folder.mkdir()
    found = run.summary if summary is None else summary
    write_results(folder, found, run.rows)
    seal_results(folder, found)
    return folder


def with_decisions(summary: Summary) -> Summary:
    """The summary with a count of decisions, as real components report."""
    durations = {"durations": {"shardCycle": {"count": 240, "mean": 0.004}}}
    return msgspec.structs.replace(summary, components={**summary.components, **durations})
