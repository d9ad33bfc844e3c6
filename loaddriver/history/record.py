"""A line of a history: what a run came from, and the numbers that comparisons decide by. Pure.

`history/<profile>/<machine>.jsonl` has one line of JSON for each run, at most 4 KiB long, with
keys in a fixed order, so that git shows a run as one added line and merges branches by lines.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from loaddriver.compare.measures import ENDPOINTS, run_measures
from loaddriver.errors import ProfileError
from loaddriver.judge.schema import Summary
from loaddriver.profile.archetypes import Positive
from loaddriver.record.rows import PodRow

SCHEMA = "bigfleet.history/v2"
MOST_BYTES = 4096
VALID = ("pass", "fail")
"""The verdicts of runs whose numbers count."""
CALIBRATION_TOLERANCE = 0.05
"""Runs are of one machine at one speed if the CPU time of the fixed task differs by no more."""
_DIGITS = 16
_SIGNIFICANT = 6


class LinePart(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """The base of a line's parts."""


class LineMachine(LinePart, frozen=True, kw_only=True):
    """The machine's digest, and the CPU seconds of a fixed task when the run began."""

    id: str
    calibration_seconds: Positive
    processor: str
    cores: str

    def matches(self, other: LineMachine) -> bool:
        """Whether numbers of both may be compared: one machine, at one speed."""
        ratio = self.calibration_seconds / other.calibration_seconds
        within = 1 / (1 + CALIBRATION_TOLERANCE) <= ratio <= 1 + CALIBRATION_TOLERANCE
        return self.id == other.id and within


class Line(LinePart, frozen=True, kw_only=True):
    """A run.

    `inputs` are the beginnings of digests: two runs had the same load if they are equal. `events`
    counts what must not happen. `endpoints` are in their units; it lacks what was not measured.
    """

    schema: str = SCHEMA
    run: str
    profile: str
    started_unix_seconds: float
    revision: str
    dirty: bool | None
    verdict: str
    machine: LineMachine
    inputs: dict[str, str]
    versions: dict[str, str]
    pods: dict[str, int]
    events: dict[str, int]
    endpoints: dict[str, Positive]

    @property
    def is_valid(self) -> bool:
        """Whether the run measured something."""
        return self.verdict in VALID


def line_of(summary: Summary, rows: Sequence[PodRow]) -> Line:
    """The line of a finished run.

    Raises ProfileError if nobody knows what it came from, or if it has no measurement.
    """
    source, run = summary.provenance, summary.run
    if source is None:
        raise ProfileError([f"{run.id}: has no provenance, so it has no place in a history"])
    if run.at_once:
        raise ProfileError(
            [f"{run.id}: another run was played at the same time; a history has runs that were not"]
        )
    measures = run_measures(summary, rows)
    return Line(
        run=run.id,
        profile=run.profile,
        started_unix_seconds=round(run.started_unix_seconds, 3),
        revision=source.revision,
        dirty=source.dirty,
        verdict=summary.verdict,
        machine=LineMachine(
            id=source.machine.id,
            calibration_seconds=source.machine.calibration_seconds,
            processor=run.environment.get("processor", ""),
            cores=run.environment.get("cores", ""),
        ),
        inputs={name: digest[:_DIGITS] for name, digest in sorted(source.inputs.items())},
        versions=dict(sorted(run.versions.items())),
        pods={
            "planned": summary.pods.planned,
            "created": summary.pods.created,
            "bound": summary.pods.bound,
        },
        events=dict(sorted(measures.events.items())),
        endpoints={
            each.key: float(f"{measures.values[each.key]:.{_SIGNIFICANT}g}")
            for each in ENDPOINTS
            if each.key in measures.values
        },
    )


def encode(line: Line) -> bytes:
    """The line with its line feed. Raises ProfileError if it is too long for a history."""
    encoded = msgspec.json.encode(line) + b"\n"
    if len(encoded) > MOST_BYTES:
        raise ProfileError(
            [f"{line.run}: its line has {len(encoded)} bytes, and a history's at most {MOST_BYTES}"]
        )
    return encoded
