"""Times mean what they say only if arrivals, milestones and clocks are within their limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loaddriver.judge.schema import Summary
from loaddriver.record.audit import AuditTimestamps
from loaddriver.record.journal import Journal
from loaddriver.record.recorder import Observations
from loaddriver.record.rows import PodRow
from tests.judge.judge_rig import IN_TIME, at, facts, gate, row, summarised, unseen

HOLDS = gate("pods.created", 0, ">=")
JOURNAL = Journal({}, 0)


def waited(number: int, **lacking: None) -> PodRow:
    """A pod that waited for its node, with all milestones but those `lacking`."""
    return row(
        str(number),
        1,
        9,
        **{
            "node_was_ready": False,
            "seen_micros": at(2),
            "rolled_up_micros": at(3),
            "decided_micros": at(4),
            "provisioned_micros": at(5),
            "node_ready_micros": at(8),
            **lacking,
        },
    )


def judged(rows: list[PodRow], journal: Journal | None = JOURNAL, **more: object) -> Summary:
    return summarised(facts(**more), [unseen()], rows, (HOLDS,), journal)


def logged() -> Observations:
    return replace(unseen(), audit=AuditTimestamps(), audit_events_lost=0)


@pytest.mark.parametrize(("lacking", "verdict"), [(1, "pass"), (2, "invalid")])
def test_hops_of_waits_with_unknown_milestones_are_doubted(lacking: int, verdict: str) -> None:
    """One in a hundred may lack one; with more, hops blame the wrong component. The doubt says how
    many, and the summary of what.
    """
    rows = [waited(n, decided_micros=None) for n in range(lacking)]
    made = judged([*rows, *(waited(n) for n in range(lacking, 100))])
    assert made.verdict == verdict
    assert made.milestones is not None
    assert (made.milestones.waited_pods, made.milestones.complete) == (100, 100 - lacking)
    assert made.milestones.missing == {"decided": lacking}
    said = "Pods with an unknown milestone of their wait: 0.02 share of the pods that waited"
    assert any(said in each for each in made.why) == (verdict == "invalid")


def test_pods_that_found_room_need_no_milestones() -> None:
    """They waited for the scheduler alone, and those never bound have not got through theirs."""
    rows = [row(str(n), 1, 2, node_was_ready=True) for n in range(50)]
    made = judged([*rows, row("never", 1)])
    assert made.milestones is not None
    assert (made.milestones.waited_pods, made.milestones.missing_share) == (0, 0.0)
    assert made.verdict == "pass"


@pytest.mark.parametrize("more", [{"bare": True}, {"journal": None}])
def test_milestones_that_a_run_cannot_have_are_not_asked_for(more: dict[str, object]) -> None:
    """A bare run has no BigFleet, and a BigFleet of the user's own may show no journal."""
    made = judged([waited(n, decided_micros=None) for n in range(100)], **more)  # type: ignore[arg-type]
    assert made.milestones is None
    assert made.self_checks["milestonesMissingShare"].limit is None
    assert made.verdict == "pass"


@pytest.mark.parametrize(("repeated", "verdict"), [(0, "pass"), (2, "pass"), (3, "fail")])
def test_repeated_requests_are_bounded(repeated: int, verdict: str) -> None:
    """Their delay counts, but what an API server has put off does not arrive as planned: it is
    overloaded, unless harness or machine are to blame.
    """
    made = judged([waited(1)], load={**IN_TIME, "requestsRetried": repeated})
    assert made.verdict == verdict
    assert made.self_checks["loadRepeatedShare"].value == repeated / 200


@pytest.mark.parametrize(
    ("offset", "verdict"), [(0.05, "pass"), (0.06, "invalid"), (None, "invalid")]
)
def test_the_offset_between_clocks_is_bounded(offset: float | None, verdict: str) -> None:
    """Where an API server's clock is used, an offset that nobody compared is a doubt as well."""
    made = summarised(facts(clock_offset_seconds=offset), [logged()], [], (HOLDS,))
    assert made.self_checks["clockOffsetSeconds"].limit == 0.05
    assert made.verdict == "invalid" or offset is not None
    assert any("clocks of the load" in each for each in made.invalid_reasons) == (
        verdict == "invalid"
    )


def test_without_logs_there_is_one_clock() -> None:
    made = judged([waited(1)], clock_offset_seconds=None)
    assert made.self_checks["clockOffsetSeconds"].limit is None
    assert made.verdict == "pass"
