"""The hand-over of domains, in all interleavings of small cases and random ones of a larger one.

`python -m tests.simulation.handover_search` tries all cases, and many more schedules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from bigfleet.ports.provider import Fence
from bigfleet.services.coordinator import domains
from bigfleet.services.coordinator.domain_lifecycle import DomainState
from bigfleet.services.coordinator.registry import Registry
from bigfleet.services.coordinator.rows import Domain, DomainName, RowChanges, put
from bigfleet.services.provider import fencing
from tests.simulation import handover_model
from tests.simulation.handover_search import (
    ONE,
    RANDOM,
    TWO,
    Case,
    Violation,
    check_all,
    check_random,
)


@pytest.fixture
def defect(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """To plant a defect into production's functions."""
    handover_model.forget_decisions()
    yield monkeypatch
    handover_model.forget_decisions()


SMALL = [replace(ONE, budget={"moves": 1}), TWO]


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_however_messages_are_delayed_and_lost_no_machine_has_two_masters(case: Case) -> None:
    """Nor is one bought twice, and from every state the domains come to rest."""
    assert check_all(case) > 500


def test_random_schedules_with_crashes_and_repeated_messages_keep_the_same() -> None:
    for seed in range(200):
        check_random(RANDOM, seed)


def test_a_domain_that_is_assigned_before_its_release_is_found(
    defect: pytest.MonkeyPatch,
) -> None:
    """The check would see it if the second step did not wait for the first."""

    def at_once(
        registry: Registry, name: DomainName, to: str, new_id: domains.NewInstructionId
    ) -> RowChanges:
        assert name in registry.domains
        return put(Domain(*name, to, DomainState.ASSIGNING, new_id()))

    defect.setattr(domains, "move", at_once)
    with pytest.raises(Violation, match="owned by both shards"):
        check_all(SMALL[0])


def test_a_provider_that_accepts_repeated_orders_is_found(defect: pytest.MonkeyPatch) -> None:
    """A late duplicate would take effect in another shard's domain."""

    def accept(fence: Fence, *_: object) -> fencing.FencingToken:
        return fencing.FencingToken(fence.epoch, fence.sequence)

    defect.setattr(fencing, "check", accept)
    repeated = {"moves": 1, "repeats": 1, "ends 0": 1}
    with pytest.raises(Violation, match="would take effect in a domain of"):
        check_all(replace(ONE, budget=repeated))


def test_a_shard_that_forgets_the_orders_of_its_former_life_is_found(
    defect: pytest.MonkeyPatch,
) -> None:
    """One that arrives after the release would take effect in another shard's domain."""
    defect.setattr(handover_model, "_is_of_former_life", lambda *_: False)
    with pytest.raises(Violation, match="would take effect in a domain of"):
        check_all(replace(ONE, budget={"moves": 1, "crash 0": 1}))
