"""The summary of a run, from everything that was recorded."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from loaddriver.judge.facts import RunFacts
from loaddriver.judge.gangs import judge_gangs
from loaddriver.judge.gates import Limit, judge_gates
from loaddriver.judge.schema import SCHEMA, Run, Summary
from loaddriver.judge.sections import (
    audit_section,
    backlog_section,
    curves,
    hops_section,
    machines_section,
    nodes_section,
    phases,
    placement,
    pods_section,
    slice_of,
    slices,
)
from loaddriver.judge.timeline import make_timeline
from loaddriver.judge.verdict import decide, doubts_about
from loaddriver.record.journal import Journal
from loaddriver.record.nodes import node_lives
from loaddriver.record.recorder import Observations
from loaddriver.record.rows import PodRow


def make_summary(
    facts: RunFacts,
    observed: Sequence[Observations],
    rows: Sequence[PodRow],
    limits: Sequence[Limit],
    journal: Journal | None = None,
) -> Summary:
    """Measure, judge and decide. Pure: the same input gives the same summary."""
    measured = _measure(facts, observed, rows, journal)
    gates = judge_gates(msgspec.to_builtins(measured), limits)
    doubts = doubts_about(facts, rows, measured.pods, measured.audit, measured.gangs)
    verdict = decide(facts, gates, doubts, measured.pods, measured.bind_latency_seconds)
    return msgspec.structs.replace(
        measured,
        verdict=verdict.word,
        exit_code=int(verdict.exit_code),
        why=list(verdict.why),
        gates=gates,
    )


def _measure(
    facts: RunFacts,
    observed: Sequence[Observations],
    rows: Sequence[PodRow],
    journal: Journal | None,
) -> Summary:
    """Everything but the verdict, which is "error" until it has been decided."""
    lives = [life for each in observed for of_name in node_lives(each).values() for life in of_name]
    timeline = make_timeline(rows, lives, facts.ended_micros)
    ramp, soak = phases(rows, facts)
    return Summary(
        schema=SCHEMA,
        verdict="error",
        exit_code=1,
        why=[],
        failures=list(facts.failures),
        run=_run(facts),
        pods=pods_section(facts.planned_pods, rows),
        bind_latency_seconds=slice_of(rows).bind_latency_seconds,
        ramp=ramp,
        soak=soak,
        backlog=backlog_section(rows, timeline),
        placement=placement(rows),
        hops_seconds=hops_section(rows),
        gangs=judge_gangs(rows, facts.planned_groups),
        machines=machines_section(journal, lives),
        nodes=nodes_section(lives, timeline),
        archetypes=slices(rows, lambda row: row.archetype),
        clusters=slices(rows, lambda row: row.cluster),
        gates=[],
        audit=audit_section(observed, rows, journal),
        load=dict(facts.load),
        components=dict(facts.components),
        curves=curves(rows),
        timeline=timeline,
    )


def _run(facts: RunFacts) -> Run:
    turn = facts.soak_started_micros
    return Run(
        id=facts.id,
        profile=facts.profile,
        seed=facts.seed,
        substrate=facts.substrate,
        started_unix_seconds=facts.started_micros / 1e6,
        soak_started_unix_seconds=None if turn is None else turn / 1e6,
        duration_seconds=(facts.ended_micros - facts.started_micros) / 1e6,
        versions=dict(facts.versions),
        environment=dict(facts.environment),
    )
