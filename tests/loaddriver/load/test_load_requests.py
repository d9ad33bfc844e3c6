from __future__ import annotations

import msgspec
import pytest

from loaddriver.load.requests import (
    MAX_ATTEMPTS,
    Pod,
    pod_at_rank,
    pods_of,
    retry_delay_seconds,
    succeeded,
)


def pods(*rows: tuple[str, str, str, bool]) -> list[Pod]:
    """Pods from (name, creation time, phase, whether it is being deleted)."""
    items = [
        {
            "metadata": {
                "name": name,
                "uid": f"uid-{name}",
                "creationTimestamp": created,
                **({"deletionTimestamp": created} if leaving else {}),
            },
            "spec": {"nodeName": "ignored"},
            "status": {"phase": phase},
        }
        for name, created, phase, leaving in rows
    ]
    return pods_of(msgspec.json.encode({"kind": "PodList", "items": items}))


def test_a_rank_selects_pods_oldest_first_then_by_name() -> None:
    listed = pods(
        ("c", "2026-01-01T00:00:01Z", "Running", False),
        ("b", "2026-01-01T00:00:02Z", "Pending", False),
        ("a", "2026-01-01T00:00:02Z", "Running", False),
    )
    names = [found.metadata.name for rank in range(4) if (found := pod_at_rank(listed, rank))]
    assert names == ["c", "a", "b", "c"]


def test_terminating_and_ended_pods_are_not_selected() -> None:
    listed = pods(
        ("a", "2026-01-01T00:00:01Z", "Running", True),
        ("b", "2026-01-01T00:00:02Z", "Succeeded", False),
        ("c", "2026-01-01T00:00:03Z", "Failed", False),
    )
    assert pod_at_rank(listed, 0) is None
    assert pod_at_rank(pods_of(b'{"items":null}'), 3) is None


@pytest.mark.parametrize(
    ("status", "attempt", "retry_after", "pause"),
    [
        (201, 1, None, None),
        (403, 1, "1", None),
        (409, 1, None, None),
        (429, 1, "2", 2.0),
        (429, 1, "3600", 10.0),
        (429, 3, "soon", 0.8),
        (503, 1, None, 0.2),
        (0, 2, None, 0.4),
        (500, MAX_ATTEMPTS, "1", None),
    ],
)
def test_only_overload_and_missing_responses_are_retried_and_not_forever(
    status: int, attempt: int, retry_after: str | None, pause: float | None
) -> None:
    assert retry_delay_seconds(status, attempt, retry_after) == pause


@pytest.mark.parametrize(
    ("verb", "status", "attempts", "worked"),
    [
        ("create", 201, 1, True),
        ("create", 409, 1, False),
        ("create", 409, 2, True),
        ("create", 404, 2, False),
        ("create", 0, 6, False),
        ("churn", 200, 1, True),
        ("churn", 404, 1, True),
        ("churn", 409, 1, True),
        ("churn", 500, 6, False),
        ("delete", 200, 1, True),
        ("delete", 404, 1, False),
        ("delete", 404, 2, True),
        ("scale", 200, 1, True),
        ("scale", 404, 2, False),
        ("scale", 403, 1, False),
    ],
)
def test_a_retry_that_finds_its_effect_has_succeeded(
    verb: str, status: int, attempts: int, worked: bool
) -> None:
    assert succeeded(verb, status, attempts) == worked
