"""A plan is divided among workers by object, and nothing of it is lost or doubled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaddriver.plan.division import divide, object_of
from loaddriver.plan.records import SETUP_STEP, LoadEvent
from tests.loaddriver.load_rig import planned

_decoder = msgspec.json.Decoder(LoadEvent)
KINDS = ("create", "scale", "delete", "churn")


def event(number: int, kind: str, cluster: int, step: int, name: str) -> LoadEvent:
    """An event of an object, with what its kind has beside."""
    common = {"type": kind, "id": str(number), "cluster": cluster, "step": step}
    kinds: dict[str, dict[str, object]] = {
        "create": {"path": "/x", "name": name, "body": {}},
        "scale": {"path": f"/x/{name}", "name": name, "replicas": 1},
        "delete": {"path": f"/x/{name}", "name": name},
        "churn": {"namespace": "n", "workload": name, "rank": 0},
    }
    line = {**common, "offsetSeconds": float(number), **kinds[kind]}
    made: LoadEvent = _decoder.decode(msgspec.json.encode(line))
    return made


@st.composite
def plans(draw: st.DrawFn) -> list[LoadEvent]:
    """Events in order of step, of a few objects with equal names in two clusters."""
    drawn = draw(
        st.lists(
            st.tuples(
                st.integers(0, 3),
                st.sampled_from(KINDS),
                st.integers(0, 1),
                st.sampled_from("abcde"),
            ),
            max_size=60,
        )
    )
    drawn.sort(key=lambda each: each[0])
    return [
        event(number, kind, cluster, step, name)
        for number, (step, kind, cluster, name) in enumerate(drawn)
    ]


def by_object(events: Sequence[LoadEvent]) -> dict[tuple[int, str], list[str]]:
    """The ids of each object's events, in order."""
    found: defaultdict[tuple[int, str], list[str]] = defaultdict(list)
    for each in events:
        found[object_of(each)].append(each.id)
    return dict(found)


@given(plans(), st.integers(1, 7))
def test_each_event_is_in_one_share_and_those_of_an_object_in_the_same_in_order(
    events: list[LoadEvent], workers: int
) -> None:
    shares = divide(events, workers)
    assert len(shares) == workers
    ids = [each.id for share in shares for each in share]
    assert sorted(ids) == sorted(each.id for each in events)
    assert len(ids) == len(set(ids))
    together: dict[tuple[int, str], list[str]] = {}
    for share in shares:
        objects = by_object(share)
        assert not together.keys() & objects.keys()
        together |= objects
    assert together == by_object(events)


@given(plans(), st.integers(1, 7))
def test_a_plan_is_always_divided_in_the_same_way(events: list[LoadEvent], workers: int) -> None:
    assert divide(events, workers) == divide(list(events), workers)


@given(plans(), st.integers(2, 7))
def test_the_set_up_is_the_first_workers(events: list[LoadEvent], workers: int) -> None:
    """Its objects need each other: a namespace and what is in it."""
    _, *others = divide(events, workers)
    assert all(each.step != SETUP_STEP for share in others for each in share)


@pytest.mark.parametrize("workers", [2, 5])
@pytest.mark.parametrize("overrides", [(), ("load.mode=cr", "anchors=off", "ramp.pacing=fixed")])
def test_shares_of_a_shipped_profile_are_about_equal(
    workers: int, overrides: tuple[str, ...]
) -> None:
    _, plan, _ = planned("dev-50", *overrides)
    sizes = [len(share) for share in divide(plan.events, workers)]
    assert sum(sizes) == len(plan.events)
    assert max(sizes) <= 1.2 * min(sizes)
