"""The summary says what happened, and its verdict names the gravest thing first."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from judge_rig import at, facts, gate, row, unseen

from loaddriver.errors import ExitCode
from loaddriver.judge.again import judge_again
from loaddriver.judge.facts import Accident
from loaddriver.judge.schema import Summary
from loaddriver.judge.summary import make_summary
from loaddriver.record.audit import AuditStamps
from loaddriver.record.recorder import Observations
from loaddriver.record.rows import PodRow

HOLDS, MISSED = gate("pods.neverBound", 5), gate("pods.created", 0, "==")
BOUND = (row("a", 1, 3), row("b", 50, 51))


def summary(rows: tuple[PodRow, ...] = BOUND, *gates: Any, **more: Any) -> Summary:
    return make_summary(facts(**more), [unseen()], rows, gates or (HOLDS,))


def test_a_run_whose_gates_hold_passes() -> None:
    """And says in figures what that means."""
    made = summary()
    assert (made.verdict, made.exit_code) == ("pass", 0)
    assert made.why == [
        "The gate holds: 2 of 2 pods were bound, half of them within 1 s and 99 % within 2 s."
    ]


@pytest.mark.parametrize(
    ("gates", "more", "verdict", "code", "why"),
    [
        ((HOLDS, MISSED), {}, "fail", ExitCode.GATE_MISSED, "The pods.created: 2 units"),
        ((HOLDS,), {"failures": ("Too slow.",)}, "fail", ExitCode.GATE_MISSED, "Too slow."),
        ((MISSED,), {"doubts": ("It stalled.",)}, "invalid", ExitCode.INVALID_RUN, "It stalled."),
        (
            (MISSED,),
            {"doubts": ("It stalled.",), "accident": Accident(ExitCode.INFRASTRUCTURE, "Dead.")},
            "error",
            ExitCode.INFRASTRUCTURE,
            "Dead.",
        ),
        (
            (HOLDS,),
            {"planned_pods": 9},
            "invalid",
            ExitCode.INVALID_RUN,
            "7 of 9 planned pods were never created.",
        ),
    ],
)
def test_the_gravest_reason_decides(
    gates: tuple[Any, ...], more: dict[str, Any], verdict: str, code: int, why: str
) -> None:
    """An accident before doubts, doubts before missed gates."""
    made = summary(BOUND, *gates, **more)
    assert (made.verdict, made.exit_code) == (verdict, code)
    assert made.why[0].startswith(why)


def test_a_run_without_gates_is_not_a_pass() -> None:
    """Nothing was judged."""
    made = make_summary(facts(), [unseen()], BOUND, [])
    assert made.verdict == "invalid"


def test_lost_stamps_void_the_run() -> None:
    """A line that could not be read may have been the slowest pod's."""
    lost = Observations("c0", AuditStamps(undecodable=2), unseen().watch, 0, 2, 0, at(100))
    made = make_summary(facts(), [lost], [], [HOLDS])
    assert made.verdict == "invalid"
    assert "2 lines of the audit log could not be read" in made.why[0]


def test_a_pod_of_no_archetype_voids_the_run() -> None:
    """An unknown class would fall out of every table."""
    assert summary((row("a", 1, 3, archetype=""),)).verdict == "invalid"


def test_the_soak_is_judged_over_its_whole_length_and_apart_from_the_ramp() -> None:
    """A pod belongs to the phase in which it was created."""
    made = summary((row("a", 1, 31), row("b", 40, 41), row("c", 99, 99.5), row("d", 70, None)))
    assert made.ramp.bind_latency_seconds.max == 30.0
    assert made.soak is not None
    assert (made.soak.pods, made.soak.bound, made.soak.never_bound) == (3, 2, 1)
    assert made.soak.seconds == 60
    assert made.soak.backlog_max == 2


def test_hops_add_up_to_the_mean_wait() -> None:
    """Also when some pods have more parts than others."""
    waited = {"seen_micros": at(1.5), "node_ready_micros": at(2), "found_room": False}
    made = summary((row("a", 1, 3, **waited), row("b", 5, 6, seen_micros=at(5.25))))
    assert list(made.hops_seconds) == ["seen", "nodeReady", "scheduled"]
    assert sum(hop.mean for hop in made.hops_seconds.values()) == 1.5
    assert made.hops_seconds["nodeReady"].pods == 1


def test_a_run_that_saw_nothing_still_has_a_summary() -> None:
    """A component that died at once must not break the report."""
    dead = Accident(ExitCode.INFRASTRUCTURE, "kube-scheduler died.")
    made = make_summary(facts(soak_started_micros=None, accident=dead), [], [], [HOLDS])
    assert made.verdict == "error"
    assert made.soak is None
    assert made.bind_latency_seconds.p50 is None


def test_the_same_input_gives_the_same_bytes() -> None:
    """And keys have a fixed order."""
    first, second = (msgspec.json.encode(summary()) for _ in range(2))
    assert first == second
    assert list(msgspec.json.decode(first))[:4] == ["schema", "verdict", "exitCode", "why"]


def test_a_run_can_be_judged_again_by_other_limits() -> None:
    """But limits cannot heal a void run, nor what the runner found wrong."""
    missed = judge_again(summary(), [MISSED])
    assert (missed.verdict, missed.exit_code) == ("fail", 3)
    assert judge_again(missed, [HOLDS]).verdict == "pass"
    assert judge_again(summary(doubts=("It stalled.",)), [HOLDS]).verdict == "invalid"
    assert judge_again(summary(failures=("Too slow.",)), [HOLDS]).verdict == "fail"
