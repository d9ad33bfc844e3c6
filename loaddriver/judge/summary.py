"""Makes the summary of a run from its recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from loaddriver.judge.applicability import applicable, not_applicable
from loaddriver.judge.audit_section import audit_section
from loaddriver.judge.bands import wait_bands
from loaddriver.judge.bare import bare_section
from loaddriver.judge.cost import cost_section
from loaddriver.judge.diagnosis import diagnose
from loaddriver.judge.disruptions import disruptions_section
from loaddriver.judge.facts import RunFacts
from loaddriver.judge.federation.section import FederationSection
from loaddriver.judge.gangs import judge_gangs
from loaddriver.judge.gates import GateSpec, judge_gates
from loaddriver.judge.interruptions import interruption_section
from loaddriver.judge.latency import create_to_bind, due_to_bind
from loaddriver.judge.milestones import milestones_section
from loaddriver.judge.price_following import price_section
from loaddriver.judge.requests import requests_section
from loaddriver.judge.resources import resources_section
from loaddriver.judge.schema import SCHEMA, Run, Summary
from loaddriver.judge.sections import (
    backlog_section,
    curves,
    hops_section,
    machines_section,
    nodes_section,
    phases,
    placement,
    pods_section,
    slices,
)
from loaddriver.judge.self_checks import disclosures, self_checks
from loaddriver.judge.stability import stability_section
from loaddriver.judge.timeline import make_timeline
from loaddriver.judge.timing_checks import timing_checks
from loaddriver.judge.verdict import attribution_of, decide
from loaddriver.record.due import MissingPod
from loaddriver.record.journal import Journal
from loaddriver.record.losses import LoadLosses
from loaddriver.record.nodes import node_lifetimes
from loaddriver.record.provenance import provider_of
from loaddriver.record.recorder import Observations
from loaddriver.record.requests import RequestRow
from loaddriver.record.rows import PodRow

_UNJUDGED: Mapping[str, Any] = {
    "verdict": "error",
    "exit_code": 1,
    "why": [],
    "diagnosis": [],
    "failures": [],
    "invalid_reasons": [],
    "requests": None,
    "gates": [],
    "bare": None,
    "side_by_side": [],
    "self_checks": {},
}


def make_summary(
    facts: RunFacts,
    observed: Sequence[Observations],
    rows: Sequence[PodRow],
    limits: Sequence[GateSpec],
    journal: Journal | None = None,
    *,
    requests: Sequence[RequestRow] = (),
    losses: LoadLosses | None = None,
    missing: Sequence[MissingPod] = (),
    bare: Summary | None = None,
    federation: FederationSection | None = None,
) -> Summary:
    """Measure, judge and decide. Pure.

    `requests` are those of a load without pods, `losses` those missing from the recording,
    `missing` the planned pods that were never created; `bare` is the paired bare run's summary.
    """
    measured = _measure(facts, observed, rows, journal, losses, missing)
    measured = msgspec.structs.replace(
        measured,
        federation=federation,
        resources=resources_section(
            facts.harness_health, observed, measured.pods.created or len(requests)
        ),
        requests=(requests_part := requests_section(facts.planned_requests, requests)),
        bare=bare_section(measured, bare),
        self_checks={
            **self_checks(facts, measured.pods, requests_part, measured.audit),
            **timing_checks(facts, measured.milestones, measured.audit),
        },
        diagnosis=diagnose(facts, observed, rows, measured.audit.failed_requests, journal),
    )
    system, logged = "" if facts.bare else facts.system, measured.audit.available
    provider = provider_of(facts.provenance)
    own = applicable(limits, system, logged=logged, provider=provider)
    gates = judge_gates(msgspec.to_builtins(measured), own, bare and msgspec.to_builtins(bare))
    attribution = attribution_of(
        facts, rows, measured.pods, measured.requests, measured.self_checks, measured.gangs
    )
    verdict = decide(
        facts.run_failure,
        gates,
        attribution,
        measured.pods,
        measured.requests,
        measured.due_to_bind_seconds,
        tuple(disclosures(measured.self_checks)),
        baseline=facts.bare,
    )
    return msgspec.structs.replace(
        measured,
        verdict=verdict.word,
        exit_code=int(verdict.exit_code),
        why=list(verdict.why),
        failures=list(attribution.failures),
        invalid_reasons=list(attribution.invalid),
        gates=gates,
        not_applicable=not_applicable(limits, system, logged=logged, provider=provider),
    )


def _measure(
    facts: RunFacts,
    observed: Sequence[Observations],
    rows: Sequence[PodRow],
    journal: Journal | None,
    losses: LoadLosses | None,
    missing: Sequence[MissingPod],
) -> Summary:
    """Measure; the verdict is "error" until it is decided."""
    lifetimes = [
        lifetime
        for each in observed
        for of_name in node_lifetimes(each).values()
        for lifetime in of_name
    ]
    timeline = make_timeline(rows, lifetimes, facts.ended_micros, missing)
    parts = phases(rows, missing, facts)
    return Summary(
        schema=SCHEMA,
        run=_run(facts),
        provenance=facts.provenance,
        pods=pods_section(facts.planned_pods, rows, missing),
        due_to_bind_seconds=due_to_bind(rows, missing),
        bind_latency_seconds=create_to_bind(rows),
        ramp=parts.ramp,
        open_stage=parts.open_stage,
        soak=parts.soak,
        backlog=backlog_section(rows, timeline),
        placement=placement(rows),
        hops_seconds=hops_section(rows),
        milestones=None if facts.bare else milestones_section(rows, journal),
        wait_bands=wait_bands(rows),
        gangs=judge_gangs(rows, facts.planned_groups, missing),
        machines=machines_section(journal, lifetimes),
        nodes=nodes_section(lifetimes, timeline),
        disruptions=disruptions_section(observed, rows, journal, facts.budget_floors),
        stability=stability_section(facts, observed, rows, journal),
        cost=cost_section(facts, observed, rows, journal),
        prices=price_section(facts, observed, rows, journal),
        interruptions=interruption_section(facts, observed, rows, journal),
        archetypes=slices(rows, lambda pod: pod.archetype, missing),
        clusters=slices(rows, lambda pod: pod.cluster, missing),
        knee=None if facts.knee is None else dict(facts.knee),
        audit=audit_section(observed, rows, journal, losses, facts.fleet_audit),
        load=dict(facts.load),
        components=dict(facts.components),
        curves=curves(rows, missing),
        timeline=timeline,
        **_UNJUDGED,
    )


def _run(facts: RunFacts) -> Run:
    soak_started = facts.soak_started_micros
    return Run(
        id=facts.id,
        profile=facts.profile,
        seed=facts.seed,
        substrate=facts.substrate,
        anchors=facts.anchors,
        bare=facts.bare,
        bare_of=facts.bare_of,
        system=facts.system,
        at_once=facts.at_once,
        started_unix_seconds=facts.started_micros / 1e6,
        soak_started_unix_seconds=None if soak_started is None else soak_started / 1e6,
        duration_seconds=(facts.ended_micros - facts.started_micros) / 1e6,
        versions=dict(facts.versions),
        environment=dict(facts.environment),
    )
