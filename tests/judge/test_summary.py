"""The summary says what happened, and its verdict names the gravest thing first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from loaddriver.errors import ExitCode
from loaddriver.judge.facts import InvalidReason, RunFailure
from loaddriver.judge.percentiles import AtLeast
from loaddriver.judge.rejudge import rejudge
from loaddriver.judge.schema import Summary
from loaddriver.record.audit import AuditTimestamps, PodCreation
from loaddriver.record.audit_line import ObjectMetadata
from loaddriver.record.live_counts import NullListener
from loaddriver.record.rows import PodRow
from loaddriver.record.watching import PodObservation, WatchTimestamps
from tests.judge.judge_rig import at, facts, gate, row, summarised, unseen

HOLDS, MISSED = gate("pods.neverBound", 5), gate("pods.created", 0, "==")
BOUND = (row("a", 1, 3), row("b", 50, 51))


def summary(rows: tuple[PodRow, ...] = BOUND, *gates: Any, **more: Any) -> Summary:
    return summarised(facts(**more), [unseen()], rows, gates or (HOLDS,))


def test_a_run_whose_gates_hold_passes() -> None:
    """And says in figures what that means."""
    many = tuple(row(str(n), 1, 2 + n % 4) for n in range(400))
    made = summary(many)
    assert (made.verdict, made.exit_code) == ("pass", 0)
    assert made.why == [
        "The gate holds: 400 of 400 pods were bound, half of them within 2 s of their due time and "
        "99 % within 4 s."
    ]


@pytest.mark.parametrize(
    ("gates", "more", "verdict", "code", "why"),
    [
        ((HOLDS, MISSED), {}, "fail", ExitCode.GATE_MISSED, "The pods.created: 2 units"),
        ((HOLDS,), {"failures": ("Too slow.",)}, "fail", ExitCode.GATE_MISSED, "Too slow."),
        (
            (MISSED,),
            {"invalid_reasons": (InvalidReason("It stalled."),)},
            "invalid",
            ExitCode.INVALID_RUN,
            "It stalled.",
        ),
        (
            (MISSED,),
            {
                "invalid_reasons": (InvalidReason("It stalled."),),
                "run_failure": RunFailure(ExitCode.INFRASTRUCTURE, "Dead."),
            },
            "error",
            ExitCode.INFRASTRUCTURE,
            "Dead.",
        ),
        (
            (HOLDS,),
            {"planned_pods": 9},
            "fail",
            ExitCode.GATE_MISSED,
            "Overloaded: the system under test did not keep up",
        ),
    ],
)
def test_the_gravest_reason_decides(
    gates: tuple[Any, ...], more: dict[str, Any], verdict: str, code: int, why: str
) -> None:
    """A run failure comes before an invalid measurement, and that before missed gates."""
    made = summary(BOUND, *gates, **more)
    assert (made.verdict, made.exit_code) == (verdict, code)
    assert made.why[0].startswith(why)


def test_a_run_without_gates_is_not_a_pass() -> None:
    """Nothing was judged."""
    made = summarised(facts(), [unseen()], BOUND, [])
    assert made.verdict == "invalid"


def test_lost_stamps_void_the_run() -> None:
    """A line that could not be read may have been the slowest pod's."""
    lost = replace(unseen(), audit=AuditTimestamps(undecodable=2), audit_events_lost=0)
    made = summarised(facts(), [lost], [], [HOLDS])
    assert made.verdict == "invalid"
    assert made.why[0].startswith(
        "Lines of the audit log lost, undecodable or without their pod: 2"
    )


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
    waited = {"seen_micros": at(1.5), "node_ready_micros": at(2), "node_was_ready": False}
    made = summary((row("a", 1, 3, **waited), row("b", 5, 6, seen_micros=at(5.25))))
    assert list(made.hops_seconds) == ["seen", "nodeReady", "scheduled"]
    assert sum(hop.mean for hop in made.hops_seconds.values()) == 1.5
    assert made.hops_seconds["nodeReady"].pods == 1


def test_every_bound_pod_found_room_or_waited_or_is_of_neither_known_class() -> None:
    """Never-bound pods are in no class: nobody knows what they would have found."""
    rows = (
        row("a", 1, 2, node_was_ready=True),
        row("b", 1, 9, node_was_ready=False),
        row("c", 1, 8, node_was_ready=False),
        row("d", 1, 4),
        row("e", 1, None),
    )
    placed = summary(rows).placement
    assert {name: part.pods for name, part in placed.items()} == {
        "nodeWasReady": 1,
        "unknown": 1,
        "waitedForNode": 2,
    }
    assert placed["waitedForNode"].bind_latency_seconds.max == 8.0
    assert sum(part.bound for part in placed.values()) == summary(rows).pods.bound


def test_how_far_the_two_clocks_disagree_is_reported() -> None:
    """Receipt by the watch minus the log's stamp, over all creations and bindings."""
    log, watch = AuditTimestamps(), WatchTimestamps(NullListener())
    for number, lag in enumerate((0.25, 0.5, -0.125)):
        uid, meta = f"u{number}", ObjectMetadata("p", "load", f"u{number}")
        log.pods[uid] = PodCreation(meta, at(number), "somebody")
        watch.pods[uid] = PodObservation("load", "p", {}, at(number + lag))
    seen = replace(unseen(), audit=log, watch=watch, audit_events_lost=0)
    clock = summarised(facts(), [seen], BOUND, [HOLDS]).audit.clock
    assert (clock.samples, clock.median_seconds, clock.p99_seconds) == (3, 0.25, 0.5)
    assert clock.min_seconds == -0.125


def test_pods_of_one_object_are_one_draw_everywhere() -> None:
    """Four hundred pods of two Deployments know neither a p99 nor a median, in any slice; those of
    four hundred know both.
    """

    def run(objects: int) -> Summary:
        return summary(
            tuple(
                row(str(n), 1, 2 + n / 100, workload=f"w{n % objects}", node_was_ready=True)
                for n in range(400)
            )
        )

    few, many = run(2), run(400)
    for made, number in ((few, AtLeast), (many, float)):
        parts: list[Any] = [*made.placement.values(), *made.archetypes.values()]
        for part in (made, made.ramp, *parts):
            assert isinstance(part.bind_latency_seconds.p50, number)
            assert isinstance(part.bind_latency_seconds.p99, number)
        assert isinstance(made.hops_seconds["scheduled"].p99, number)
    said = "half of them within at least 0 s of their due time and the slowest within 4.99 s."
    assert few.why[0].endswith(said)


def test_bands_show_where_typical_and_slow_pods_spent_their_time() -> None:
    """The slowest hundredth may have waited for something else than the middle fifth."""
    quick = [row(str(n), 0, 1) for n in range(99)]
    slow = row("slow", 0, 50, node_ready_micros=at(40), node_was_ready=False)
    bands = summary((*quick, slow)).wait_bands
    assert bands["all"].hops_seconds == {"nodeReady": 0.4, "scheduled": 1.09}
    assert (bands["middle"].pods, bands["middle"].wait_seconds) == (20, 1.0)
    assert (bands["slowest"].pods, bands["slowest"].wait_seconds) == (1, 50.0)
    assert bands["slowest"].hops_seconds == {"nodeReady": 40.0, "scheduled": 10.0}
    assert summary((row("a", 0, 1),)).wait_bands["middle"].pods == 1


def test_a_run_that_saw_nothing_still_has_a_summary() -> None:
    """A component that died at once must not break the report."""
    dead = RunFailure(ExitCode.INFRASTRUCTURE, "kube-scheduler died.")
    made = summarised(facts(soak_started_micros=None, run_failure=dead), [], [], [HOLDS])
    assert made.verdict == "error"
    assert made.soak is None
    assert made.bind_latency_seconds.p50 is None
    assert made.wait_bands == {}


def test_a_run_of_two_pods_says_that_they_are_few() -> None:
    """No percentile is claimed that two pods cannot know; the slowest of them is known."""
    said = "half of them within at least 0 s of their due time and the slowest within 2 s."
    assert summary().why[0].endswith(said)


def test_the_same_input_gives_the_same_bytes() -> None:
    """And keys have a fixed order."""
    first, second = (msgspec.json.encode(summary()) for _ in range(2))
    assert first == second
    assert list(msgspec.json.decode(first))[:4] == ["schema", "verdict", "exitCode", "why"]


def test_a_run_can_be_judged_again_by_other_limits() -> None:
    """But limits cannot heal a void run, nor what the runner found wrong."""
    missed = rejudge(summary(), [MISSED])
    assert (missed.verdict, missed.exit_code) == ("fail", 3)
    assert rejudge(missed, [HOLDS]).verdict == "pass"
    assert (
        rejudge(summary(invalid_reasons=(InvalidReason("It stalled."),)), [HOLDS]).verdict
        == "invalid"
    )
    assert rejudge(summary(failures=("Too slow.",)), [HOLDS]).verdict == "fail"
    ungated = summarised(facts(), [unseen()], BOUND, [])
    assert rejudge(ungated, [HOLDS]).verdict == "pass"


def test_a_run_to_which_no_gate_applies_is_not_judged_well() -> None:
    """Neither at first nor by other limits: a pass that nothing was asked for means nothing."""
    for found in (summarised(facts(), [unseen()], BOUND, []), rejudge(summary(), [])):
        assert (found.verdict, found.exit_code) == ("invalid", 5)
        assert "nothing was judged" in found.why[0]


def test_a_bare_run_needs_no_gates_of_its_own() -> None:
    """It is the baseline of its pair, whose gates may all be ratios; it can still be invalid."""
    found = summarised(facts(bare=True, bare_of="smoke-1"), [unseen()], BOUND, [])
    for each in (found, rejudge(found, [])):
        assert (each.verdict, each.exit_code) == ("pass", 0)
        assert each.why[0].startswith("No gate of its own: ")
    stalled = facts(bare=True, bare_of="smoke-1", invalid_reasons=(InvalidReason("It stalled."),))
    assert summarised(stalled, [unseen()], BOUND, []).verdict == "invalid"


def test_a_run_judged_again_keeps_everything_but_its_judgement() -> None:
    """Rows are not measured anew: only gates, verdict and reasons change."""
    made = summary()
    again = rejudge(made, [MISSED])
    changed = {"gates", "verdict", "exit_code", "why"}
    for field in set(made.__struct_fields__) - changed:
        assert getattr(again, field) == getattr(made, field)


def test_a_ratio_to_the_bare_run_is_judged_again_only_beside_it() -> None:
    """Without the bare summary there is no ratio, so the gate fails and says why."""
    ratio = gate("bindLatencySeconds.max", 3, ratio_to="bare")
    bare = summary((row("a", 1, 2),), bare=True)
    assert rejudge(summary(), [ratio], bare).verdict == "pass"
    missed = rejudge(summary(), [ratio])
    assert missed.verdict == "fail"
    assert "this run has no bare run" in missed.why[0]
