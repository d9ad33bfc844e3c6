"""Each bound of the self-audit voids a run that exceeds it, and only that.

Others took a fifth of the CPU in these runs, so that none is blamed on the system under test;
`test_overload.py` has those that are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loaddriver.errors import ExitCode
from loaddriver.judge import check_limits
from loaddriver.judge.facts import RunFailure
from loaddriver.judge.rejudge import rejudge
from loaddriver.judge.schema import Summary
from loaddriver.judge.summary import make_summary
from loaddriver.plan.manifests import ARCHETYPE_LABEL, WORKLOAD_LABEL
from loaddriver.record.audit import AuditTimestamps, PodCreation
from loaddriver.record.audit_line import ObjectMetadata
from loaddriver.record.cpu import CpuUse, CpuWindow
from loaddriver.record.losses import LoadLosses
from loaddriver.record.recorder import Observations
from loaddriver.record.rows import build_rows
from loaddriver.record.watching import PodObservation
from tests.judge.judge_rig import IN_TIME, SOUND, at, facts, gate, row, unseen, window

NOTHING_LOST = LoadLosses(0, 0)

BOUNDED = {
    "loopStallMaxSeconds",
    "loadLatenessMaxSeconds",
    "loadLatenessP99Seconds",
    "clockStepMaxSeconds",
    "loopComputingMaxSeconds",
    "harnessCpuShare",
    "harnessCoresMax10s",
    "othersCpuShare",
    "othersCpuShareMax10s",
    "throttledShare",
    "throttledShareMax10s",
    "apiServersUnanswered",
    "watchGaps",
    "auditLinesLost",
    "auditEventsLost",
    "rowsLost",
    "loadLost",
    "loadRepeatedShare",
}


def summary(
    observed: Observations | None = None, losses: LoadLosses | None = NOTHING_LOST, **more: Any
) -> Summary:
    gates = [gate("pods.neverBound", 0, "==")]
    seen = [observed or unseen()]
    rows = build_rows(seen) if observed else [row("a", 1, 3)]
    return make_summary(facts(planned_pods=0, **more), seen, rows, gates, losses=losses)


def summary_of_shared(**more: Any) -> Summary:
    """On a machine where others took enough for a slow system to be theirs."""
    return summary(**{**unwell(cpu=CpuUse(10 * (window(others=0.2),))), **more})


def unwell(**more: Any) -> dict[str, Any]:
    return {"harness_health": replace(SOUND, **more)}


def used(*windows: CpuWindow) -> dict[str, Any]:
    return unwell(cpu=CpuUse(windows))


def late(**more: float | None) -> dict[str, Any]:
    return {"load": {**IN_TIME, **more}}


def logged(timestamps: AuditTimestamps | None = None, **more: Any) -> dict[str, Any]:
    log = replace(unseen(), audit=timestamps or AuditTimestamps(), audit_events_lost=0)
    return {"observed": replace(log, **more)}


def unlogged_pod() -> dict[str, Any]:
    observed = logged()["observed"]
    labels = {WORKLOAD_LABEL: "w", ARCHETYPE_LABEL: "web"}
    observation = PodObservation("load", "p", labels, at(1), deleted_micros=at(2))
    observed.watch.pods["a"] = observation
    return {"observed": observed}


def unlogged_binding() -> dict[str, Any]:
    """The log has the pod, and only the watch has seen that it was bound."""
    labels = {WORKLOAD_LABEL: "w", ARCHETYPE_LABEL: "web"}
    created = PodCreation(ObjectMetadata("p", "load", "a", labels), at(1), "somebody")
    observed = logged(AuditTimestamps(pods={"a": created}))["observed"]
    observed.watch.pods["a"] = PodObservation("load", "p", labels, at(1), "n1", "Running", at(2))
    return {"observed": observed}


def test_a_sound_harness_is_within_every_bound() -> None:
    """And every bound has its value and its reason in the summary."""
    made = summary()
    assert made.verdict == "pass"
    checks = made.self_checks
    assert {name for name, check in checks.items() if check.limit is not None} == BOUNDED
    assert all(check.within for check in checks.values())
    assert all(checks[name].reason and checks[name].value is not None for name in BOUNDED)
    assert checks["harnessCpuShare"].value == pytest.approx(0.02)
    assert checks["harnessCpuSecondsPerPod"].value == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("provoked", "check", "sentence"),
    [
        (
            unwell(loop_stall_max_seconds=1.01, loop_computing_max_seconds=1.01),
            "loopStallMaxSeconds",
            "The longest stall of the runner's event loop: 1.01 seconds, limit 1",
        ),
        (late(maxLatenessSeconds=2.5), "loadLatenessMaxSeconds", "2.5 seconds, limit 2"),
        (late(p99LatenessSeconds=0.6), "loadLatenessP99Seconds", "0.6 seconds, limit 0.5"),
        (
            unwell(clock_step_max_seconds=0.06),
            "clockStepMaxSeconds",
            "The largest step of this machine's clock: 0.06 seconds",
        ),
        (
            unwell(loop_computing_max_seconds=1.5),
            "loopComputingMaxSeconds",
            "event loop used in one stall: 1.5 seconds, limit 1.",
        ),
        (
            used(*10 * [window(harness=2.6)]),
            "harnessCpuShare",
            "CPU used by the harness itself: 0.26 share of the run's CPU, limit 0.25",
        ),
        (
            used(window(harness=19, busy=1), *9 * [window()]),
            "harnessCoresMax10s",
            "a process of the load in the busiest 10 s: 0.95 cores, limit 0.9.",
        ),
        (
            used(*10 * [window(others=0.26)]),
            "othersCpuShare",
            "the hypervisor during the load: 0.26 share of this machine's CPU, limit 0.25",
        ),
        (
            used(*19 * [window(others=0.02)], window(others=0.51, busy=0.9)),
            "othersCpuShareMax10s",
            "the hypervisor in the worst 10 s: 0.51 share of this machine's CPU, limit 0.5.",
        ),
        (
            used(*10 * [window(throttled=0.26)]),
            "throttledShare",
            "CPU quota was used up: 0.26 share of the quota's periods, limit 0.25.",
        ),
        (
            used(*19 * [window()], window(throttled=0.6)),
            "throttledShareMax10s",
            "used up, in the worst 10 s: 0.6 share of the quota's periods, limit 0.5.",
        ),
        (
            {"observed": replace(unseen(), watch_gaps=1)},
            "watchGaps",
            "Watches that expired, without an audit log: 1 gap, limit 0",
        ),
        (logged(AuditTimestamps(undecodable=1)), "auditLinesLost", "without their pod: 1 line,"),
        (logged(AuditTimestamps(without_uid=1)), "auditLinesLost", "without their pod: 1 line,"),
        (logged(audit_restarts=1), "auditLinesLost", "without their pod: 1 line,"),
        (logged(audit_events_lost=3), "auditEventsLost", "the log lacks: 3 events,"),
        (unlogged_binding(), "rowsLost", "a watch has and the audit log lacks: 1 pod,"),
        (unlogged_pod(), "rowsLost", "a watch has and the audit log lacks: 1 pod,"),
        ({"losses": LoadLosses(1, 0)}, "loadLost", "without a line or row: 1 request,"),
        ({"losses": LoadLosses(0, 2)}, "loadLost", "without a line or row: 2 requests,"),
    ],
)
def test_a_value_beyond_its_bound_voids_the_run(
    provoked: dict[str, Any], check: str, sentence: str
) -> None:
    """The verdict is invalid, and the sentence gives value, bound and reason."""
    made = summary_of_shared(**provoked)
    assert (made.verdict, made.exit_code) == ("invalid", ExitCode.INVALID_RUN)
    assert not made.self_checks[check].within
    [said] = [each for each in made.why if sentence in each]
    assert said.endswith(made.self_checks[check].reason)
    assert said in made.invalid_reasons


@pytest.mark.parametrize(
    "at_the_bound",
    [
        unwell(loop_stall_max_seconds=check_limits.LOOP_STALL.maximum),
        unwell(clock_step_max_seconds=check_limits.CLOCK_STEP.maximum),
        used(window(harness=10 * check_limits.CPU_SHARE.maximum)),
        used(window(others=check_limits.OTHERS_SHARE.maximum)),
        used(window(throttled=check_limits.THROTTLED_SHARE.maximum)),
        late(maxLatenessSeconds=check_limits.LATENESS_MAX.maximum),
        late(p99LatenessSeconds=check_limits.LATENESS_P99.maximum),
    ],
)
def test_a_value_at_its_bound_is_within(at_the_bound: dict[str, Any]) -> None:
    """A bound is the most that may be."""
    assert summary(**at_the_bound).verdict == "pass"


@pytest.mark.parametrize(
    "unmeasured",
    [
        {"harness_health": None},
        unwell(cpu=CpuUse(())),
        late(p99LatenessSeconds=None),
        {"losses": None},
    ],
)
def test_what_nobody_measured_voids_the_run(unmeasured: dict[str, Any]) -> None:
    """A harness that does not watch itself proves nothing."""
    made = summary(**unmeasured)
    assert made.verdict == "invalid"
    assert made.why[0].startswith("Not measured by the harness: ")


def test_a_run_that_broke_off_is_not_blamed_for_what_it_could_not_measure() -> None:
    """Its failure is the reason, and the limits that were exceeded until then."""
    dead = RunFailure(ExitCode.INFRASTRUCTURE, "kube-scheduler died.")
    made = summary(run_failure=dead, harness_health=None, load={"maxLatenessSeconds": 9.0})
    assert made.verdict == "error"
    assert [each[:20] for each in made.why] == ["kube-scheduler died.", "The largest lateness"]


def test_gaps_of_the_watch_change_nothing_where_the_log_is_the_clock() -> None:
    """They are shown all the same."""
    made = summary(**logged(watch_gaps=4))
    assert made.verdict == "pass"
    assert (made.self_checks["watchGaps"].value, made.self_checks["watchGaps"].limit) == (4, None)


def test_one_server_that_does_not_say_leaves_the_sum_unknown() -> None:
    """Two logs, one count: nobody knows what was lost in all."""
    both = [logged()["observed"], replace(logged()["observed"], audit_events_lost=None)]
    made = make_summary(facts(planned_pods=0), both, [], [gate("pods.created", 1)])
    assert made.audit.events_lost is None


def test_a_p99_of_too_few_requests_is_shown_and_voids_nothing() -> None:
    """It is their maximum then, which has a bound of its own."""
    few = {"p99LatenessSeconds": 1.5, "maxLatenessSeconds": 1.5, "requestsSent": 99}
    made = summary(**late(**few))
    assert made.verdict == "pass"
    assert made.self_checks["loadLatenessP99Seconds"].value == 1.5
    late_load = late(**{**few, "requestsSent": 100})
    assert summary_of_shared(**late_load).verdict == "invalid"


@pytest.mark.parametrize(("share", "told"), [(0.04, 0), (0.06, 1), (0.25, 1)])
def test_a_run_that_was_not_alone_says_so_although_it_is_valid(share: float, told: int) -> None:
    """Also when it is judged again."""
    made = summary(**used(window(others=share)))
    for judged in (made, rejudge(made, [gate("pods.neverBound", 0, "==")])):
        assert judged.verdict == "pass"
        assert sum("Other processes used" in each for each in judged.why) == told
    missed = rejudge(made, [gate("pods.bound", 9, ">=")])
    assert (missed.verdict, len(missed.why)) == ("fail", 1 + told)


def test_a_run_that_was_one_of_two_at_once_says_so_and_is_valid() -> None:
    """What the other one took is nobody else's, and no part of what this one cost."""
    shared = replace(window(others=0.4, busy=0.9), other_run_seconds=0.38 * 20.0)
    made = summary(**used(shared))
    assert made.verdict == "pass"
    assert "Another run was played at the same time and used 38 %" in "".join(made.why)
    assert made.self_checks["othersCpuShare"].value == pytest.approx(0.02)
    assert made.resources is not None
    assert made.resources.windows.run_share == [pytest.approx(0.5)]
    assert "otherRunCpuShare" not in summary().self_checks


def test_others_that_took_too_much_have_names() -> None:
    """So that somebody can end them."""
    made = summary(**used(window(others=0.6, busy=0.9)))
    assert made.verdict == "invalid"
    assert made.why[0].endswith("Those that used most: make (7) 60 %.")
    assert made.why[1].endswith("Those that used most: make (7) 60 %.")
    assert "used most" not in summary().self_checks["othersCpuShare"].reason


def test_where_nobody_can_tell_what_others_take_the_reason_stands_instead() -> None:
    """A machine that hides it is no reason to doubt the run."""
    made = summary(**unwell(others_unknown="there is a quota"))
    assert made.verdict == "pass"
    assert made.self_checks["othersCpuShare"].what.endswith("unknown, because there is a quota")
