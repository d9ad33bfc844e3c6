"""From what was recorded to the files of a run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from loaddriver.anchors.outcomes import GroupOutcome
from loaddriver.federated.record import FederationRecord
from loaddriver.judge.facts import Accident, RunFacts, Shortfall
from loaddriver.judge.federation.section import FederationSection, Sources, federation_section
from loaddriver.judge.schema import Summary
from loaddriver.judge.summary import make_summary
from loaddriver.load import LoadProgress
from loaddriver.load_files import Result, ResultReader
from loaddriver.record.hpas import federated_statuses, hpa_writes
from loaddriver.record.journal import read_journals
from loaddriver.record.losses import LoadLosses, load_losses
from loaddriver.record.requests import RequestRow, build_request_rows
from loaddriver.record.rows import PodRow, build_rows
from loaddriver.record.watching import now_micros
from loaddriver.report.results import write_results
from loaddriver.run.archetypes import archetype_facts
from loaddriver.run.host import describe, python_versions
from loaddriver.run.pairing import PLAN, save_nodes
from loaddriver.run.part import Part
from loaddriver.run.phases import Course
from loaddriver.run.playing import Played
from loaddriver.substrates.base import Capabilities

# Written by the load process; the file with its tokens is not among them.
_ANSWERS = "load.jsonl"
_LOAD_FILES = (PLAN, _ANSWERS)


@dataclass(frozen=True)
class Evidence:
    """All that a verdict rests on. `load_folder` has the load's own files."""

    part: Part
    substrate: str
    capabilities: Capabilities
    versions: Mapping[str, str]
    load_folder: Path
    journals: Sequence[Path]
    started_micros: int
    course: Course
    played: Played
    components: Mapping[str, Any] = field(default_factory=dict)
    shortfalls: Sequence[Shortfall] | None = None
    federated: FederationRecord | None = None
    accident: Accident | None = None


def conclude(evidence: Evidence) -> Summary:
    """Judge, and write every file of the run; also for a run that broke off."""
    part, played = evidence.part, evidence.played
    journal = read_journals(evidence.journals) if evidence.journals else None
    rows = anchored_rows(build_rows(played.observed, journal), played.groups)
    requests = build_request_rows(played.observed)
    summary = make_summary(
        _facts(evidence),
        played.observed,
        rows,
        part.gates,
        journal,
        requests=requests,
        losses=_losses(evidence, rows, requests),
        federation=_federation(evidence.federated),
    )
    save_nodes(played.observed, part.prepared.machines, part.folder)
    for name in _LOAD_FILES:
        if (evidence.load_folder / name).exists():
            shutil.copy(evidence.load_folder / name, part.folder / name)
    if played.groups:
        lines = (msgspec.json.encode(group) + b"\n" for group in played.groups)
        (part.folder / "groups.jsonl").write_bytes(b"".join(lines))
    write_results(part.folder, summary, rows)
    return summary


def anchored_rows(rows: Sequence[PodRow], groups: Sequence[GroupOutcome]) -> list[PodRow]:
    """With those marked that went to the nominated node as the first of their gang."""
    first = {(each.cluster, each.pod) for each in groups if each.outcome == "anchored"}
    return [
        replace(row, bound_by="anchor") if (row.cluster, row.uid) in first else row for row in rows
    ]


def _federation(record: FederationRecord | None) -> FederationSection | None:
    if record is None:
        return None
    return federation_section(
        Sources(record, hpa_writes(record.logs), federated_statuses(record.host_log))
    )


def _losses(
    evidence: Evidence, rows: Sequence[PodRow], requests: Sequence[RequestRow]
) -> LoadLosses | None:
    """None when there was no load to hold against what was recorded."""
    answers = evidence.load_folder / _ANSWERS
    if not answers.exists() or not evidence.played.observed:
        return None
    results = [line for line in ResultReader(answers).new_lines() if isinstance(line, Result)]
    events = evidence.part.prepared.plan.events
    return load_losses(events, results, evidence.played.observed, rows, requests)


def _facts(evidence: Evidence) -> RunFacts:
    part, prepared, course = evidence.part, evidence.part.prepared, evidence.course
    settings = prepared.profile.settings
    # A knee run ends where binding breaks, long before its plan does.
    planned, last_step = settings.pods, None
    if course.knee is not None:
        planned, last_step = course.pods_asked, course.steps_released
    of_pods = settings.load.mode == "pods"
    return RunFacts(
        id=part.run_id,
        profile=prepared.profile.name,
        seed=settings.seed,
        substrate=evidence.substrate,
        started_micros=evidence.started_micros,
        soak_started_micros=course.soak_started_micros,
        ended_micros=now_micros(),
        planned_pods=planned if of_pods else 0,
        planned_requests=0 if of_pods else planned,
        planned_groups=prepared.planned_groups(last_step) if of_pods else {},
        versions={**evidence.versions, **python_versions()},
        environment=describe(prepared.host, evidence.capabilities),
        load=_load_section(evidence.played.load, course),
        components=evidence.components,
        failures=tuple(course.failures),
        doubts=() if evidence.accident else tuple(_doubts(evidence.played.load)),
        accident=evidence.accident,
        anchors=settings.anchors,
        bare=bool(part.bare_of),
        bare_of=part.bare_of,
        knee=None if course.knee is None else msgspec.to_builtins(course.knee),
        self_audit=evidence.played.self_audit,
        archetypes=archetype_facts(prepared.profile, prepared.machines),
        shortfalls=evidence.shortfalls,
        budget_floors=prepared.budget_floors() if of_pods else {},
        fleet=prepared.fleet_facts(course.soak_started_micros) if of_pods else None,
    )


def _load_section(load: LoadProgress | None, course: Course) -> dict[str, Any]:
    if load is None:
        return {}
    return {
        "requestsPlanned": load.planned,
        "requestsSent": load.sent,
        "requestsFailed": load.failed,
        "requestsRetried": load.retried,
        "churnsInVain": load.in_vain,
        "maxLatenessSeconds": load.max_lateness_seconds,
        "p99LatenessSeconds": load.p99_lateness_seconds,
        "rampBreaches": len(course.breaches),
    }


def _doubts(load: LoadProgress | None) -> Iterator[str]:
    if load is not None and load.failed:
        yield f"{load.failed} of the load's requests failed; the first: {load.first_failure}."
