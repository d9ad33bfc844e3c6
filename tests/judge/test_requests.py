"""A load of CapacityRequests is measured by how soon they are acknowledged."""

from __future__ import annotations

from dataclasses import replace

from loaddriver.judge.percentiles import AtLeast
from loaddriver.judge.requests import requests_section
from loaddriver.judge.schema import Summary
from loaddriver.record.requests import RequestRow
from tests.judge.judge_rig import at, facts, gate, summarised, unseen


def asked(
    created: float,
    acknowledged: float | None = None,
    cluster: str = "c0",
    deleted: float | None = None,
) -> RequestRow:
    """A CapacityRequest of the load; times are seconds after the start."""
    return RequestRow(
        cluster=cluster,
        namespace="load",
        name="request",
        uid=f"{cluster}-{created}",
        archetype="web",
        workload=f"web-{created}",
        group="",
        step="1",
        created_micros=at(created),
        acknowledged_micros=None if acknowledged is None else at(acknowledged),
        deleted_micros=None if deleted is None else at(deleted),
        observed_until_micros=at(100),
        source="audit",
    )


def summary(rows: list[RequestRow], planned: int) -> Summary:
    return summarised(
        facts(planned_pods=0, planned_requests=planned),
        [unseen()],
        [],
        [gate("requests.neverAcknowledged", 0, "==")],
        requests=rows,
    )


def test_waits_run_from_due_time_to_acknowledgement() -> None:
    """By cluster and over all; beside it, from creation."""
    late = replace(asked(2, 7, "c1"), due_micros=at(0.5))
    section = requests_section(2, [asked(1, 3), late])
    assert section is not None
    assert (section.planned, section.created, section.acknowledged) == (2, 2, 2)
    assert section.due_to_ack_seconds.max == 6.5
    assert section.ack_latency_seconds.max == 5.0
    assert {name: each.max for name, each in section.clusters.items()} == {"c0": 2.0, "c1": 6.5}


def test_a_request_never_acknowledged_is_still_waiting() -> None:
    """It is counted, and the percentiles keep it; one that was withdrawn waited until then."""
    gone = asked(1, deleted=11)
    section = requests_section(3, [asked(1, 2), asked(10), gone])
    assert section is not None
    assert (section.never_acknowledged, section.withdrawn) == (2, 1)
    assert section.ack_latency_seconds.max == AtLeast(90.0)
    assert requests_section(1, [gone]).ack_latency_seconds.max == AtLeast(10.0)  # type: ignore[union-attr]


def test_a_run_of_pods_has_no_such_section() -> None:
    """Its requests are the pod controller's, and a hop of its pods."""
    assert requests_section(0, []) is None


def test_a_plan_of_requests_that_made_none_has_one() -> None:
    """Nothing created is a finding, not nothing to say."""
    section = requests_section(5, [])
    assert section is not None
    assert (section.planned, section.created, section.ack_latency_seconds.p50) == (5, 0, None)


def test_a_run_of_requests_is_judged_and_says_so() -> None:
    """Without pods, the verdict speaks of requests."""
    made = summary([asked(n / 10, n / 10 + 2) for n in range(400)], 400)
    assert made.verdict == "pass"
    assert made.why == [
        "The gate holds: 400 of 400 requests were acknowledged, "
        "half of them within 2 s of their due time and 99 % within 2 s."
    ]
    assert summary([asked(1)], 1).verdict == "fail"


def test_requests_that_never_came_are_the_slow_systems_failure() -> None:
    """As with pods."""
    made = summary([asked(1, 2)], 3)
    assert made.verdict == "fail"
    assert made.why[1] == "2 of 3 planned requests were never created."
