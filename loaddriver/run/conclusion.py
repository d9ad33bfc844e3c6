"""From what was recorded to the files of a run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from loaddriver.anchors.outcomes import GroupOutcome
from loaddriver.judge.facts import Accident, RunFacts
from loaddriver.judge.schema import Summary
from loaddriver.judge.summary import make_summary
from loaddriver.load import LoadProgress
from loaddriver.record.journal import read_journals
from loaddriver.record.recorder import Observations
from loaddriver.record.rows import build_rows
from loaddriver.record.watching import now_micros
from loaddriver.report.results import write_results
from loaddriver.run.host import describe, python_versions
from loaddriver.run.phases import Course
from loaddriver.run.prepared import Prepared

# A load that is sent this late did not follow its plan, so what it measured is something else.
_MAX_LATENESS_SECONDS = 2.0
# Written by the load process; the file with its tokens is not among them.
_LOAD_FILES = ("plan.jsonl", "load.jsonl")


@dataclass(frozen=True)
class Evidence:
    """All that a verdict rests on. Results go to `folder`; `load_folder` has the load's files."""

    prepared: Prepared
    substrate: str
    versions: Mapping[str, str]
    folder: Path
    load_folder: Path
    journal: Path
    started_micros: int
    course: Course
    load: LoadProgress | None
    observed: Sequence[Observations]
    groups: Sequence[GroupOutcome]
    components: Mapping[str, Any] = field(default_factory=dict)
    accident: Accident | None = None


def conclude(evidence: Evidence) -> Summary:
    """Judge, and write every file of the run; also for a run that broke off."""
    journal = read_journals([evidence.journal]) if evidence.journal.exists() else None
    rows = build_rows(evidence.observed, journal)
    gates = evidence.prepared.profile.gates
    summary = make_summary(_facts(evidence), evidence.observed, rows, gates, journal)
    for name in _LOAD_FILES:
        if (evidence.load_folder / name).exists():
            shutil.copy(evidence.load_folder / name, evidence.folder / name)
    if evidence.groups:
        lines = (msgspec.json.encode(group) + b"\n" for group in evidence.groups)
        (evidence.folder / "groups.jsonl").write_bytes(b"".join(lines))
    write_results(evidence.folder, summary, rows)
    return summary


def _facts(evidence: Evidence) -> RunFacts:
    settings = evidence.prepared.profile.settings
    return RunFacts(
        id=evidence.folder.name,
        profile=evidence.prepared.profile.name,
        seed=settings.seed,
        substrate=evidence.substrate,
        started_micros=evidence.started_micros,
        soak_started_micros=evidence.course.soak_started_micros,
        ended_micros=now_micros(),
        planned_pods=settings.pods,
        planned_groups=evidence.prepared.planned_groups(),
        versions={**evidence.versions, **python_versions()},
        environment=describe(evidence.prepared.host),
        load=_load_section(evidence),
        components=evidence.components,
        failures=tuple(evidence.course.failures),
        doubts=() if evidence.accident else tuple(_doubts(evidence.load)),
        accident=evidence.accident,
    )


def _load_section(evidence: Evidence) -> dict[str, Any]:
    if evidence.load is None:
        return {}
    return {
        "requestsPlanned": evidence.load.planned,
        "requestsSent": evidence.load.sent,
        "requestsFailed": evidence.load.failed,
        "requestsRetried": evidence.load.retried,
        "maxLatenessSeconds": evidence.load.max_lateness_seconds,
        "rampBreaches": len(evidence.course.breaches),
        "anchors": evidence.prepared.profile.settings.anchors,
    }


def _doubts(load: LoadProgress | None) -> Iterator[str]:
    if load is None:
        return
    if load.failed:
        yield f"{load.failed} of the load's requests failed; the first: {load.first_failure}."
    if load.max_lateness_seconds > _MAX_LATENESS_SECONDS:
        yield (
            f"The load was sent up to {load.max_lateness_seconds:.1f} s late, "
            f"{_MAX_LATENESS_SECONDS:g} s may be."
        )
