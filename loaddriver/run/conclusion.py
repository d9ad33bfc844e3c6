"""Judges what was recorded and writes the files of a run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from loaddriver.anchors.outcomes import GroupOutcome
from loaddriver.fedhpa.record import FederationRecord
from loaddriver.judge.facts import (
    ArchetypeFacts,
    RunFacts,
    RunFailure,
    Shortfall,
)
from loaddriver.judge.federation.section import FederationSection, Sources, federation_section
from loaddriver.judge.schema import Summary
from loaddriver.judge.summary import make_summary
from loaddriver.karpenter.objects import machine_of
from loaddriver.load.files import EventResult, ResultReader, StepReleased
from loaddriver.profile.archetypes import Archetype
from loaddriver.profile.loading import Profile
from loaddriver.profile.settings import ProfileSettings
from loaddriver.record.clocks import largest_clock_offset_seconds
from loaddriver.record.due import DueTimes
from loaddriver.record.fleet_audit import FleetAudit
from loaddriver.record.hpas import federated_statuses, hpa_writes
from loaddriver.record.journal import read_journals
from loaddriver.record.losses import LoadLosses, load_losses
from loaddriver.record.provenance import Provenance
from loaddriver.record.requests import RequestRow, build_request_rows
from loaddriver.record.rows import PodRow, build_rows
from loaddriver.report.results import write_results
from loaddriver.run.host import describe, python_versions
from loaddriver.run.inputs import Arm
from loaddriver.run.load_phases import RunProgress
from loaddriver.run.load_section import load_section, unplayed_reasons
from loaddriver.run.measurement import MeasurementResult
from loaddriver.run.paired_run import PLAN, save_nodes
from loaddriver.run.static_fleet import machine_like
from loaddriver.sizing.inventory import InventoryMachine
from loaddriver.substrates.base import Capabilities

# Files of the load process that are kept; the one with tokens is not.
_RESULTS = "load.jsonl"
_LOAD_FILES = (PLAN, _RESULTS)


@dataclass(frozen=True)
class Evidence:
    """All evidence for a verdict. `load_folder` has the files of the load process. The run, as it
    is judged, ended at `ended_micros`; the fleet was audited after that.
    """

    arm: Arm
    substrate: str
    capabilities: Capabilities
    versions: Mapping[str, str]
    load_folder: Path
    journals: Sequence[Path]
    started_micros: int
    ended_micros: int
    run_progress: RunProgress
    measured: MeasurementResult
    components: Mapping[str, Any] = field(default_factory=dict)
    shortfalls: Sequence[Shortfall] | None = None
    federated: FederationRecord | None = None
    run_failure: RunFailure | None = None
    provenance: Provenance | None = None
    fleet_audit: FleetAudit | None = None
    at_once: bool = False


def conclude(evidence: Evidence) -> Summary:
    """Judge the run and write all its files, also if it ended early."""
    arm, measured = evidence.arm, evidence.measured
    own_nodes = list(_own_nodes(evidence))
    journal = read_journals(evidence.journals) if evidence.journals else None
    load_lines = _load_lines(evidence)
    due = DueTimes(arm.inputs.plan, load_lines, arm.inputs.cluster_names)
    results = [line for line in load_lines if isinstance(line, EventResult)]
    if not measured.observed:
        results = []  # nothing to compare them with
    facts = replace(
        _run_facts(evidence, own_nodes),
        clock_offset_seconds=largest_clock_offset_seconds(
            arm.inputs.plan.events, results, measured.observed, journal, measured.load_workers
        ),
    )
    until_micros = max((each.ended_micros for each in measured.observed), default=0)
    rows, missing = due.of_pods(build_rows(measured.observed, journal), until_micros)
    rows = anchored_rows(rows, measured.groups)
    requests = due.of_requests(build_request_rows(measured.observed))
    summary = make_summary(
        facts,
        measured.observed,
        rows,
        arm.inputs.profile.gates,
        journal,
        requests=requests,
        losses=_losses(evidence, results, rows, requests),
        missing=missing if facts.planned_pods else (),
        federation=_federation(evidence.federated),
    )
    save_nodes(measured.observed, [*arm.inputs.machines, *own_nodes], arm.folder)
    for name in _LOAD_FILES:
        if (evidence.load_folder / name).exists():
            shutil.copy(evidence.load_folder / name, arm.folder / name)
    if measured.groups:
        lines = (msgspec.json.encode(group) + b"\n" for group in measured.groups)
        (arm.folder / "groups.jsonl").write_bytes(b"".join(lines))
    write_results(arm.folder, summary, rows)
    return summary


def anchored_rows(rows: Sequence[PodRow], groups: Sequence[GroupOutcome]) -> list[PodRow]:
    """Mark the pods that were bound by an anchor, as the first of their gang."""
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


def _load_lines(evidence: Evidence) -> list[StepReleased | EventResult]:
    """What the load driver recorded; empty if it never started."""
    lines = ResultReader(evidence.load_folder / _RESULTS).new_lines()
    return [line for line in lines if isinstance(line, StepReleased | EventResult)]


def _losses(
    evidence: Evidence,
    results: Sequence[EventResult],
    rows: Sequence[PodRow],
    requests: Sequence[RequestRow],
) -> LoadLosses | None:
    """Compare the load's results with the records; None without load or records."""
    if not results or not evidence.measured.observed:
        return None
    events = evidence.arm.inputs.plan.events
    return load_losses(events, results, evidence.measured.observed, rows, requests)


def _own_nodes(evidence: Evidence) -> Iterator[InventoryMachine]:
    """The machines that another autoscaler created, under their Nodes' names."""
    settings, machines = evidence.arm.inputs.profile.settings, evidence.arm.inputs.machines
    for each in evidence.measured.observed:
        for node in each.watch.nodes.values():
            found: InventoryMachine | None = None
            if settings.on_karpenter:
                found = machine_of(node.name, node.labels, machines)
            elif _of_command(settings, node.labels):
                found = machine_like(node.name, node.labels, machines)
            if found is not None:
                yield found


def _of_command(settings: ProfileSettings, labels: Mapping[str, str]) -> bool:
    selector = settings.command.node_selector
    return settings.system == "command" and selector.items() <= labels.items()


def _unpriced_nodes(evidence: Evidence, known: Sequence[InventoryMachine]) -> int:
    """The system's Nodes that are like no machine of the fleet."""
    settings, names = evidence.arm.inputs.profile.settings, {machine.id for machine in known}
    return sum(
        _of_command(settings, node.labels) and node.name not in names
        for each in evidence.measured.observed
        for node in each.watch.nodes.values()
    )


def _run_facts(evidence: Evidence, own_nodes: Sequence[InventoryMachine]) -> RunFacts:
    arm, inputs, run_progress = evidence.arm, evidence.arm.inputs, evidence.run_progress
    settings = inputs.profile.settings
    # A knee run ends when binding falls behind, before all planned pods are released.
    planned, last_step = settings.pods, None
    if run_progress.knee is not None:
        planned, last_step = run_progress.pods_asked, run_progress.steps_released
    pods_mode = settings.load.mode == "pods"
    return RunFacts(
        id=arm.run_id,
        profile=inputs.profile.name,
        seed=settings.seed,
        substrate=evidence.substrate,
        started_micros=evidence.started_micros,
        ramp_started_micros=run_progress.ramp_started_micros,
        open_stage_started_micros=run_progress.open_stage_started_micros,
        soak_started_micros=run_progress.soak_started_micros,
        ended_micros=evidence.ended_micros,
        planned_pods=planned if pods_mode else 0,
        planned_requests=0 if pods_mode else planned,
        planned_groups=inputs.planned_groups(last_step) if pods_mode else {},
        versions={**evidence.versions, **python_versions()},
        environment=describe(inputs.host, evidence.capabilities),
        load=load_section(evidence.measured, run_progress, settings.ramp.pacing),
        components=evidence.components,
        failures=tuple(run_progress.failures),
        invalid_reasons=()
        if evidence.run_failure
        else tuple(unplayed_reasons(evidence.measured.load, run_progress.unsent)),
        run_failure=evidence.run_failure,
        anchors=settings.anchors,
        bare=bool(arm.bare_of),
        bare_of=arm.bare_of,
        system="" if arm.bare_of else settings.system,
        knee=None if run_progress.knee is None else msgspec.to_builtins(run_progress.knee),
        harness_health=evidence.measured.harness_health,
        provenance=evidence.provenance,
        archetypes=archetype_facts(inputs.profile, inputs.machines),
        shortfalls=evidence.shortfalls,
        fleet_audit=evidence.fleet_audit,
        at_once=evidence.at_once,
        budget_floors=inputs.budget_floors() if pods_mode else {},
        fleet=replace(
            inputs.fleet_facts(
                run_progress.soak_started_micros, own_nodes, evidence.measured.market
            ),
            unpriced_nodes=_unpriced_nodes(evidence, own_nodes),
        )
        if pods_mode
        else None,
    )


def archetype_facts(
    profile: Profile, machines: Sequence[InventoryMachine]
) -> dict[str, ArchetypeFacts]:
    """The facts that a diagnosis needs, by archetype; `machines` is the whole fleet."""
    return {each.name: _archetype_facts(each, machines) for each in profile.catalog.archetypes}


def _archetype_facts(archetype: Archetype, machines: Sequence[InventoryMachine]) -> ArchetypeFacts:
    types = frozenset(name for size in archetype.sizes for name in size.instance_types)
    return ArchetypeFacts(
        pods_per_machine=archetype.pods_per_machine or 0,
        instance_types=types,
        topology=archetype.gang.topology if archetype.gang else "",
        fleet_machines=sum(machine.instance_type in types for machine in machines),
    )
