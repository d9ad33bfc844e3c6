"""A system under test that is too slow fails; only harness and machine make a run invalid."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loaddriver.errors import ExitCode
from loaddriver.judge.facts import HarnessHealth, InvalidReason, RunFailure
from loaddriver.judge.rejudge import rejudge
from loaddriver.judge.schema import Summary
from loaddriver.judge.summary import make_summary
from loaddriver.record.audit import AuditTimestamps
from loaddriver.record.losses import LoadLosses
from tests.judge.judge_rig import IN_TIME, facts, gate, health, row, unseen, window

FULL = window(harness=0.4, others=0.02, busy=0.98, waited=3)
SATURATED = health(*10 * [FULL])
LATE: dict[str, Any] = {"load": {**IN_TIME, "maxLatenessSeconds": 9.0}}
HOLDS = gate("pods.neverBound", 0, "==")


def judged(own: HarnessHealth = SATURATED, planned: int = 1, **more: Any) -> Summary:
    """A run with one created pod, on a machine of two full cores."""
    evidence = facts(planned_pods=planned, harness_health=own, **more)
    return make_summary(evidence, [unseen()], [row("a", 1, 3)], [HOLDS], losses=LoadLosses(0, 0))


def unanswered() -> Summary:
    """An API server whose metrics could not be read for a minute."""
    log = replace(unseen(), audit=AuditTimestamps(), audit_events_lost=None)
    evidence = facts(planned_pods=0, harness_health=SATURATED)
    return make_summary(evidence, [log], [], [gate("pods.created", 0)], losses=LoadLosses(0, 0))


@pytest.mark.parametrize(
    ("made", "symptom"),
    [
        (judged(**LATE), "The largest lateness of a request of the load: 9 seconds, limit 2."),
        (
            judged(load={**IN_TIME, "p99LatenessSeconds": 0.9}),
            "Lateness of the load's requests, p99: 0.9 seconds, limit 0.5.",
        ),
        (judged(planned=3), "2 of 3 planned pods were never created."),
        (
            judged(invalid_reasons=(InvalidReason("7 requests failed.", overload=True),)),
            "7 requests failed.",
        ),
        (
            judged(replace(SATURATED, loop_stall_max_seconds=2)),
            "The longest stall of the runner's event loop: 2 seconds, limit 1.",
        ),
        (unanswered(), "API servers that did not give their metrics at the end: 1 server, limit 0"),
    ],
)
def test_what_a_slow_system_causes_is_its_failure(made: Summary, symptom: str) -> None:
    """Exit code 3, and the first sentence says which processes took the CPU."""
    assert (made.verdict, made.exit_code) == ("fail", ExitCode.GATE_MISSED)
    assert made.why[0] == (
        "Overloaded: the system under test did not keep up. In the busiest 10 s the machine was "
        "98 % busy with c1/kube-apiserver 58 %, shard-0 36 %, runner 1 %; the harness used 2 % of "
        "the run's CPU and others 2 % of the machine's."
    )
    assert made.why[1].startswith(symptom)
    assert (made.invalid_reasons, made.failures[:2]) == ([], made.why[:2])


def test_a_system_that_is_slow_on_idle_cores_fails_too_and_the_sentence_says_so() -> None:
    """Locks and timers do not show as CPU."""
    made = judged(health(), planned=2)
    assert made.verdict == "fail"
    assert "though cores were idle (at most 50 % busy in 10 s)" in made.why[0]


@pytest.mark.parametrize(
    "own",
    [
        health(*10 * [window(others=0.12, busy=0.98, waited=3)]),
        health(*9 * [FULL], window(others=0.3, busy=0.98)),
        health(*10 * [replace(window(others=0.4, busy=0.98, waited=3), other_run_seconds=8.0)]),
        health(*10 * [window(throttled=0.12, busy=0.98, waited=3)]),
        health(*9 * [FULL], window(throttled=0.3, busy=0.98)),
        health(*10 * [window(harness=2.0, busy=0.98, waited=3)]),
        health(*9 * [FULL], window(harness=18.2, busy=0.98)),
        replace(SATURATED, loop_computing_max_seconds=1.1, loop_stall_max_seconds=2),
        replace(SATURATED, others_unknown="there is a quota"),
    ],
)
def test_where_harness_or_machine_may_be_the_cause_the_run_is_invalid(own: HarnessHealth) -> None:
    """Others, the other run of a pair, a hypervisor, a quota, or a harness busy with itself."""
    made = judged(own, **LATE)
    assert (made.verdict, made.exit_code) == ("invalid", ExitCode.INVALID_RUN)
    assert made.failures == []


@pytest.mark.parametrize(
    ("waited", "verdict"), [(0.0, "invalid"), (0.9, "invalid"), (1.0, "fail"), (5.0, "fail")]
)
def test_a_late_driver_is_the_systems_fault_only_if_it_waited_for_a_core(
    waited: float, verdict: str
) -> None:
    """One that was stopped, or waited for a disk, is late on its own account."""
    own = health(window(), window(busy=0.98, waited=waited))
    assert judged(own, **LATE).verdict == verdict
    assert judged(own, planned=2).verdict == "fail"


def test_one_doubt_about_the_recording_makes_the_whole_run_invalid() -> None:
    """An incomplete log cannot tell late pods from lost lines."""
    made = judged(invalid_reasons=(InvalidReason("It stalled."),), **LATE)
    assert made.verdict == "invalid"
    assert made.why[0] == "It stalled."
    assert len(made.why) == 2


def test_an_overloaded_run_stays_failed_when_it_is_judged_again() -> None:
    made = rejudge(judged(**LATE), [HOLDS])
    assert (made.verdict, made.exit_code) == ("fail", ExitCode.GATE_MISSED)
    assert made.why[0].startswith("Overloaded: ")


def test_a_run_that_ended_early_is_not_called_overloaded() -> None:
    """The component that died is the cause."""
    dead = RunFailure(ExitCode.INFRASTRUCTURE, "kube-scheduler died.")
    made = judged(run_failure=dead, **LATE)
    assert (made.verdict, made.failures) == ("error", [])
    assert made.why[0] == "kube-scheduler died."
