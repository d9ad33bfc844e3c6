"""Effects of instructions on the ownership record, in any order and with repetitions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.ports.ownership import DrainTask, InstructionVersion, OwnershipRecord, QuotaKey
from bigfleet.services.shard.coordination.instructions import MAX_ANSWERS, Draft, release, take
from tests.support.fake_coordinator import rack

_ACK = wire.InstructAck
_ASSIGN: dict[str, Any] = {
    "assign_domain": wire.AssignDomain(topology_key=rack("a").key, topology_value="a")
}
_UNASSIGN: dict[str, Any] = {
    "unassign_domain": wire.UnassignDomain(topology_key=rack("a").key, topology_value="a")
}


def instruction(
    term: int, sequence: int, number: str = "", **what: Any
) -> wire.CoordinatorInstruction:
    return wire.CoordinatorInstruction(
        coordinator_term=term,
        sequence_number=sequence,
        instruction_id=number or f"{term}-{sequence}",
        **what,
    )


def outcomes(draft: Draft, *told: wire.CoordinatorInstruction) -> list[str]:
    return [_ACK.Outcome.Name(a.outcome) for each in told for a in take(draft, each)]


def test_only_newer_instructions_are_carried_out() -> None:
    """An older term or sequence number is rejected as stale, and changes nothing."""
    draft = Draft(OwnershipRecord())
    assert outcomes(draft, instruction(2, 5, **_ASSIGN)) == ["ACCEPTED"]
    for stale in (instruction(2, 5, "x", **_UNASSIGN), instruction(1, 9, **_UNASSIGN)):
        assert outcomes(draft, stale) == ["REJECTED_STALE"]
    assert draft.domains == {rack("a")}
    assert draft.newest == InstructionVersion(2, 5)


def test_a_repeated_instruction_gets_its_answer_again() -> None:
    """Also after newer ones, and from a newer leader; it is not carried out twice."""
    draft = Draft(OwnershipRecord())
    assign = instruction(1, 1, **_ASSIGN)
    take(draft, assign)
    take(draft, instruction(1, 2, **_UNASSIGN))
    release(draft, "1-2")
    assert outcomes(draft, assign, instruction(2, 7, "1-1", **_ASSIGN)) == ["ACCEPTED"] * 2
    assert draft.domains == set()
    assert draft.newest == InstructionVersion(2, 7)


def test_an_unassigned_domain_is_owned_until_it_is_released() -> None:
    """Until then there is no acknowledgement, however often the instruction is repeated."""
    draft = Draft(OwnershipRecord(domains=frozenset({rack("a")})))
    leave = instruction(1, 1, **_UNASSIGN)
    assert outcomes(draft, leave, leave) == []
    assert draft.domains == {rack("a")}
    assert release(draft, "1-1").outcome == _ACK.ACCEPTED
    assert (draft.domains, draft.leaving) == (set(), {})


def test_a_domain_that_is_assigned_again_stays() -> None:
    """The newer instruction counts, and the older one ends as FAILED."""
    draft = Draft(OwnershipRecord(domains=frozenset({rack("a")})))
    take(draft, instruction(1, 1, **_UNASSIGN))
    assert outcomes(draft, instruction(1, 2, **_ASSIGN)) == ["FAILED", "ACCEPTED"]
    assert (draft.domains, draft.leaving) == ({rack("a")}, {})


def test_a_domain_that_is_not_owned_is_released_at_once() -> None:
    """So that a coordinator that has lost state does not wait."""
    assert outcomes(Draft(OwnershipRecord()), instruction(1, 1, **_UNASSIGN)) == ["ACCEPTED"]


@pytest.mark.parametrize(
    "what",
    [
        {"transfer_ownership": wire.TransferOwnership(machine_ids=["m"])},
        {"cross_shard_drain": wire.CrossShardDrain(topology_value="a")},
        {"reassign_speculative": wire.ReassignSpeculative(machine_ids=["m"])},
        {"quota_slice": wire.QuotaSlice(provider="p", machines=-1)},
        {},
    ],
)
def test_an_unsupported_instruction_is_rejected(what: dict[str, Any]) -> None:
    """It is rejected with the reason, and blocks no newer instruction."""
    draft = Draft(OwnershipRecord())
    (answer,) = take(draft, instruction(1, 1, **what))
    assert answer.outcome == _ACK.REJECTED_INVALID
    assert answer.reason
    assert draft.to_record() == OwnershipRecord()


def test_a_quota_slice_replaces_the_one_before() -> None:
    """One number for each provider and region."""
    draft = Draft(OwnershipRecord())
    for sequence, machines in ((1, 5), (2, 3)):
        told = wire.QuotaSlice(provider="p", region="r", machines=machines)
        take(draft, instruction(1, sequence, quota_slice=told))
    assert draft.slices == {QuotaKey("p", "r"): 3}


def test_only_the_newest_answers_are_kept() -> None:
    """Memory does not grow with every instruction there ever was."""
    draft = Draft(OwnershipRecord())
    for sequence in range(1, MAX_ANSWERS + 11):
        take(draft, instruction(1, sequence, **_ASSIGN))
    assert next(iter(draft.to_record().answered)) == "1-11"


_VERSIONS = st.tuples(st.integers(1, 3), st.integers(1, 6))


@given(st.lists(st.tuples(_VERSIONS, st.booleans()), max_size=30))
def test_ownership_follows_the_newest_instructions(
    arrived: list[tuple[tuple[int, int], bool]],
) -> None:
    """Late, repeated and shuffled instructions end as those alone would that came in order."""
    draft, newest, owned = Draft(OwnershipRecord()), (0, 0), False
    seen: dict[tuple[int, int], bool] = {}
    for mark, assigns in arrived:
        assigns = seen.setdefault(mark, assigns)  # an id stands for one instruction for good
        take(draft, instruction(*mark, **(_ASSIGN if assigns else _UNASSIGN)))
        for number in list(draft.leaving):
            release(draft, number)
        if mark > newest:
            newest, owned = mark, assigns
        assert draft.newest == InstructionVersion(*newest)
        assert (rack("a") in draft.domains) is owned


_DRAIN: dict[str, Any] = {
    "cross_shard_drain": wire.CrossShardDrain(
        topology_key=rack("a").key,
        topology_value="a",
        machine_ids=["m"],
        preemptor_priority=7,
        reason="east lacked machines",
    )
}


def test_a_domain_to_be_drained_is_owned_until_it_is_released() -> None:
    """What is to be drained is recorded with the release, and ends with it."""
    draft = Draft(OwnershipRecord(domains=frozenset({rack("a")})))
    order = instruction(1, 1, **_DRAIN)
    assert outcomes(draft, order, order) == []
    task = DrainTask(("m",), 7, "east lacked machines")
    assert (draft.domains, draft.drains) == ({rack("a")}, {"1-1": task})
    assert release(draft, "1-1").outcome == _ACK.ACCEPTED
    assert (draft.domains, draft.leaving, draft.drains) == (set(), {}, {})


def test_a_refused_drain_changes_nothing_and_stays_refused() -> None:
    """The coordinator then counts the domain as this shard's again."""
    draft = Draft(OwnershipRecord(domains=frozenset({rack("a")})))
    order = instruction(1, 1, **_DRAIN)
    (refused,) = take(draft, order, lambda task: f"{task.machine_ids[0]} must stay")
    assert (refused.outcome, refused.reason) == (_ACK.FAILED, "m must stay")
    assert take(draft, order) == [refused]
    assert (draft.domains, draft.leaving, draft.drains) == ({rack("a")}, {}, {})
