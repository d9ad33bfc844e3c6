"""The parts of a wait are ordered, never negative, and add up to it exactly."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loaddriver.record.hops import HOPS, plausible, split

MOMENTS = st.integers(min_value=0, max_value=2**52)
REACHED = st.dictionaries(st.sampled_from(HOPS[:-1]), MOMENTS | st.none())


@given(MOMENTS, st.integers(min_value=0, max_value=2**45), REACHED, st.booleans())
def test_hops_add_up_exactly(
    created: int, wait: int, reached: dict[str, int | None], waited: bool
) -> None:
    """Whatever clocks claim: no microsecond is lost, none counted twice, none negative."""
    parts = split(created, created + wait, plausible(reached, created + wait, waited))
    assert sum(parts.values()) == wait
    assert all(part >= 0 for part in parts.values())
    assert list(parts) == [hop for hop in HOPS if hop in parts]
    assert "scheduled" in parts


def test_a_milestone_before_the_pod_costs_it_nothing() -> None:
    """The machine was on its way when the pod came."""
    parts = split(100, 150, {"seen": 110, "decided": 40, "nodeReady": 130})
    assert parts == {"seen": 10, "decided": 0, "nodeReady": 20, "scheduled": 20}


def test_a_pod_that_found_room_owes_nothing_to_machines() -> None:
    """Nor to the request for one, which nobody waited for: a slow scheduler must not hide there."""
    reached = {"arrived": 2, "seen": 3, "rolledUp": 9, "decided": 1, "nodeReady": 2}
    assert plausible(reached, 10, waited=False) == {"arrived": 2}


def test_a_pod_does_not_wait_for_its_roll_up_once_its_machine_is_chosen() -> None:
    """It took a machine that was chosen for others, before its own need had reached a shard."""
    reached = {"seen": 2, "rolledUp": 9, "decided": 4, "nodeReady": 7}
    assert plausible(reached, 20, waited=True)["rolledUp"] == 4
