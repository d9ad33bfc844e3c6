"""A domain belongs to one shard at a time, whatever is lost or repeated, whoever crashes."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.model.errors import IllegalTransition, InvalidInput, UnknownObject
from bigfleet.services.coordinator import (
    acknowledgements,
    domains,
    instructions,
    shard_removal,
    shards,
)
from bigfleet.services.coordinator.domain_lifecycle import (
    TRANSITIONS,
    DomainEvent,
    DomainState,
    next_state,
)
from bigfleet.services.coordinator.domains import Observation
from bigfleet.services.coordinator.instructions import pending
from bigfleet.services.coordinator.registry import Registry
from bigfleet.services.coordinator.rows import Domain, RowChanges, Shard, put
from tests.support.fake_shard import FakeShard

RACK = "topology.bigfleet/rack"


def registry_with(*names: str) -> Registry:
    registry = Registry()
    registry.apply(put(*(Shard(name, "127.0.0.1:1", 1, 0) for name in names)))
    return registry


class InstructionIds:
    """Unique instruction ids."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def __call__(self) -> str:
        return f"1-{next(self._numbers)}"


def state_of(registry: Registry, value: str) -> tuple[str, str]:
    domain = registry.domains[RACK, value]
    return domain.shard, domain.state.value


def report_of(registry: Registry, shard: str, *accepted: str) -> wire.ShardReport:
    acks = [
        wire.InstructAck(instruction_id=instruction_id, outcome=wire.InstructAck.ACCEPTED)
        for instruction_id in accepted
    ]
    owned = sum(d.state is DomainState.OWNED for d in registry.domains_of(shard))
    return wire.ShardReport(shard_id=shard, instruction_acks=acks, owned_domains=owned)


def settle(registry: Registry, shard: str, instruction_id: InstructionIds) -> None:
    """Have the shard accept all its instructions."""
    pending_instructions = [each.instruction_id for each in pending(registry, shard, (), ())]
    registry.apply(
        acknowledgements.apply_acks(
            registry, report_of(registry, shard, *pending_instructions), instruction_id
        )
    )


def test_unowned_domains_go_to_the_shard_with_the_fewest_machines() -> None:
    """Largest first, so that shards get about equal numbers; the result is deterministic."""
    registry, instruction_id = registry_with("s1", "s2"), InstructionIds()
    sizes = {"r1": 10, "r2": 40, "r3": 30, "r4": 25}
    seen = [Observation(RACK, rack, machines) for rack, machines in sizes.items()]
    registry.apply(domains.assign_unowned(registry, ["s1", "s2"], seen, instruction_id))
    owners = {value: domain.shard for (_, value), domain in registry.domains.items()}
    assert owners == {"r2": "s1", "r3": "s2", "r4": "s2", "r1": "s1"}
    assert registry.load("s1").machines == 50
    assert registry.load("s2").machines == 55


def test_every_instance_type_is_spread_evenly() -> None:
    """Also a scarce one: a shard without any could never serve needs for it."""
    registry, instruction_id = registry_with("s1", "s2", "s3"), InstructionIds()
    racks = {"cpu": (30, 30, 10), "gpu": (2, 2, 2), "memory": (8, 8, 8)}
    seen = [
        Observation(RACK, f"{kind}-{number}", machines, kind)
        for kind, sizes in racks.items()
        for number, machines in enumerate(sizes)
    ]
    registry.apply(domains.assign_unowned(registry, ["s1", "s2", "s3"], seen[1:], instruction_id))
    registry.apply(domains.assign_unowned(registry, ["s1", "s2", "s3"], seen[:1], instruction_id))
    for shard in ("s1", "s2", "s3"):
        assert registry.load(shard).of_type["gpu"] == 2
        assert registry.load(shard).of_type["memory"] == 8
        assert registry.load(shard).of_type["cpu"] in {10, 30}


def test_an_owned_domain_is_not_assigned_again() -> None:
    """A delayed report may still list it as unowned."""
    registry, instruction_id = registry_with("s1", "s2"), InstructionIds()
    registry.apply(
        domains.assign_unowned(registry, ["s1"], [Observation(RACK, "r1", 1)], instruction_id)
    )
    assert (
        domains.assign_unowned(registry, ["s2"], [Observation(RACK, "r1", 1)], instruction_id) == {}
    )


def test_a_domain_listed_twice_in_one_report_is_assigned_once() -> None:
    registry = registry_with("s1", "s2")
    changes = domains.assign_unowned(
        registry,
        ["s1", "s2"],
        [Observation(RACK, "r1", 1), Observation(RACK, "r1", 2)],
        InstructionIds(),
    )
    assert len(changes) == 1


def test_no_more_instructions_are_built_than_one_answer_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise a hundred thousand pending domains would stall the leader at each report."""
    registry, made = registry_with("s1"), count()
    seen = [Observation(RACK, f"r{n}", 1) for n in range(2000)]
    registry.apply(domains.assign_unowned(registry, ["s1"], seen, InstructionIds()))

    def counted(_: Domain, instruction_id: str) -> wire.CoordinatorInstruction:
        next(made)
        return wire.CoordinatorInstruction(instruction_id=instruction_id)

    monkeypatch.setattr(instructions, "_assignment", counted)
    assert len(pending(registry, "s1", (), ())) == instructions.MAX_INSTRUCTIONS
    assert next(made) == instructions.MAX_INSTRUCTIONS


def test_a_moved_domain_is_assigned_only_after_its_release() -> None:
    """The new shard gets no instruction before the old one has accepted the release."""
    registry, instruction_id = registry_with("s1", "s2"), InstructionIds()
    registry.apply(
        domains.assign_unowned(registry, ["s1"], [Observation(RACK, "r1", 1)], instruction_id)
    )
    settle(registry, "s1", instruction_id)
    assert state_of(registry, "r1") == ("s1", "owned")
    registry.apply(domains.move(registry, (RACK, "r1"), "s2", instruction_id))
    assert state_of(registry, "r1") == ("s1", "releasing")
    assert pending(registry, "s2", (), ()) == []
    settle(registry, "s1", instruction_id)
    assert state_of(registry, "r1") == ("s2", "assigning")
    settle(registry, "s2", instruction_id)
    assert state_of(registry, "r1") == ("s2", "owned")


def test_an_instruction_keeps_its_id_until_it_is_acknowledged() -> None:
    """Also when its destination changes: the shard may be carrying it out already."""
    registry, instruction_id = registry_with("s1", "s2", "s3"), InstructionIds()
    registry.apply(
        domains.assign_unowned(registry, ["s1"], [Observation(RACK, "r1", 1)], instruction_id)
    )
    registry.apply(domains.move(registry, (RACK, "r1"), "s2", instruction_id))
    first = [each.instruction_id for each in pending(registry, "s1", (), ())]
    registry.apply(domains.move(registry, (RACK, "r1"), "s3", instruction_id))
    assert [each.instruction_id for each in pending(registry, "s1", (), ())] == first
    settle(registry, "s1", instruction_id)
    assert state_of(registry, "r1") == ("s3", "assigning")


def test_an_acknowledgement_of_a_superseded_instruction_is_ignored() -> None:
    registry, instruction_id = registry_with("s1"), InstructionIds()
    registry.apply(
        domains.assign_unowned(registry, ["s1"], [Observation(RACK, "r1", 1)], instruction_id)
    )
    old = registry.domains[RACK, "r1"].instruction_id
    registry.apply(domains.release(registry, (RACK, "r1"), instruction_id))
    late = report_of(registry, "s1", old)
    assert acknowledgements.apply_acks(registry, late, instruction_id) == {}


def test_a_stale_instruction_is_repeated_and_a_failed_one_gets_a_new_id() -> None:
    """A shard always answers an instruction the same way, unless it rejected it as stale."""
    registry, instruction_id = registry_with("s1"), InstructionIds()
    registry.apply(
        domains.assign_unowned(registry, ["s1"], [Observation(RACK, "r1", 1)], instruction_id)
    )
    [pending_instructions] = pending(registry, "s1", (), ())

    def after(outcome: wire.InstructAck.Outcome.ValueType) -> list[str]:
        answer = wire.InstructAck(
            instruction_id=pending_instructions.instruction_id, outcome=outcome
        )
        report = wire.ShardReport(shard_id="s1", instruction_acks=[answer])
        registry.apply(acknowledgements.apply_acks(registry, report, instruction_id))
        return [each.instruction_id for each in pending(registry, "s1", (), ())]

    assert after(wire.InstructAck.REJECTED_STALE) == [pending_instructions.instruction_id]
    [fresh] = after(wire.InstructAck.FAILED)
    assert fresh != pending_instructions.instruction_id


def test_a_domain_does_not_go_to_a_shard_that_left_while_it_waited() -> None:
    registry, instruction_id = registry_with("s1", "s2"), InstructionIds()
    registry.apply(
        domains.assign_unowned(registry, ["s1"], [Observation(RACK, "r1", 1)], instruction_id)
    )
    registry.apply(domains.move(registry, (RACK, "r1"), "s2", instruction_id))
    registry.apply(shards.removed(registry, "s2"))
    settle(registry, "s1", instruction_id)
    assert (RACK, "r1") not in registry.domains


def test_a_live_shard_leaves_only_after_it_has_released_everything() -> None:
    registry, instruction_id = registry_with("s1", "s2"), InstructionIds()
    seen = [Observation(RACK, f"r{n}", 1) for n in range(5)]
    registry.apply(domains.assign_unowned(registry, ["s1"], seen, instruction_id))
    settle(registry, "s1", instruction_id)
    registry.apply(shards.leaving(registry, "s1"))
    registry.apply(shard_removal.next_removal_step(registry, "s1", 3, instruction_id))
    settle(registry, "s1", instruction_id)
    registry.apply(shard_removal.next_removal_step(registry, "s1", 3, instruction_id))
    assert shard_removal.next_removal_step(registry, "s1", 3, instruction_id) == {}, (
        "two releases are not answered yet"
    )
    settle(registry, "s1", instruction_id)
    registry.apply(shard_removal.next_removal_step(registry, "s1", 3, instruction_id))
    assert registry.shards["s1"].removed
    assert not registry.domains


def test_the_rows_of_a_removed_shard_are_freed_in_batches() -> None:
    registry, instruction_id = registry_with("s1", "s2"), InstructionIds()
    registry.apply(
        domains.assign_unowned(
            registry, ["s1"], [Observation(RACK, f"r{n}", 1) for n in range(5)], instruction_id
        )
    )
    registry.apply(shards.removed(registry, "s1"))
    while batch := shard_removal.orphaned_rows(registry, 2, instruction_id):
        assert len(batch) <= 2
        registry.apply(batch)
    assert not registry.domains


@pytest.mark.parametrize("is_alive", [True, False])
def test_others_get_even_parts_of_what_a_removed_shard_had(*, is_alive: bool) -> None:
    """At once, without waiting for a shard to see the domains again; a live one releases first."""
    registry, instruction_id = registry_with("s1", "s2", "s3"), InstructionIds()
    seen = [Observation(RACK, f"{kind}{n}", 3, kind) for kind in ("cpu", "gpu") for n in range(6)]
    names = ["s1", "s2", "s3"]
    registry.apply(domains.assign_unowned(registry, names, seen, instruction_id))
    for name in names:
        settle(registry, name, instruction_id)
    others = ["s2", "s3"]
    if is_alive:
        registry.apply(shards.leaving(registry, "s1"))
        step = shard_removal.next_removal_step(registry, "s1", 10, instruction_id, others)
        registry.apply(step)
        assert registry.load("s1").domains == 4
        settle(registry, "s1", instruction_id)
    else:
        registry.apply(shards.removed(registry, "s1"))
        registry.apply(shard_removal.orphaned_rows(registry, 10, instruction_id, others))
    for name in others:
        assert registry.load(name).of_type == {"cpu": 9, "gpu": 9}
        settle(registry, name, instruction_id)
        assert {state_of(registry, d.topology_value)[1] for d in registry.domains_of(name)} == {
            "owned"
        }
        assert all(domain.home == domain.shard for domain in registry.domains_of(name))


def test_a_shard_that_lost_its_domains_gets_them_again() -> None:
    """It restarted with an empty state directory; no other shard owns them."""
    registry, instruction_id = registry_with("s1"), InstructionIds()
    registry.apply(
        domains.assign_unowned(
            registry,
            ["s1"],
            [Observation(RACK, "r1", 1), Observation(RACK, "r2", 1)],
            instruction_id,
        )
    )
    settle(registry, "s1", instruction_id)
    empty = wire.ShardReport(shard_id="s1", owned_domains=0)
    reminded = pending(registry, "s1", (), acknowledgements.lost_domains(registry, empty, ()))
    assert sorted(each.assign_domain.topology_value for each in reminded) == ["r1", "r2"]
    done = [each.instruction_id for each in reminded]
    assert acknowledgements.lost_domains(registry, empty, done) == []
    whole = wire.ShardReport(shard_id="s1", owned_domains=2)
    assert acknowledgements.lost_domains(registry, whole, ()) == []


def test_moving_to_an_unknown_or_leaving_shard_is_rejected_by_name() -> None:
    registry, instruction_id = registry_with("s1", "s2"), InstructionIds()
    with pytest.raises(UnknownObject, match="shard s9 has never"):
        domains.move(registry, (RACK, "r1"), "s9", instruction_id)
    registry.apply(shards.leaving(registry, "s2"))
    with pytest.raises(InvalidInput, match="being removed"):
        domains.move(registry, (RACK, "r1"), "s2", instruction_id)
    with pytest.raises(UnknownObject, match="not assigned"):
        domains.release(registry, (RACK, "r1"), instruction_id)


def test_an_illegal_move_names_domain_state_and_event() -> None:
    with pytest.raises(IllegalTransition, match=r"rack=r1 is owned, which does not allow"):
        next_state((RACK, "r1"), DomainState.OWNED, DomainEvent.RELEASED)


def test_only_a_free_domain_is_assigned_and_only_a_release_or_removal_frees_one() -> None:
    """The safety property of the transition table."""
    gives = [state for state, event in TRANSITIONS if event is DomainEvent.GIVE]
    assert gives == [DomainState.FREE]
    frees = {event for (_, event), after in TRANSITIONS.items() if after is DomainState.FREE}
    assert frees == {DomainEvent.RELEASED, DomainEvent.OWNER_GONE}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["give", "move", "release", "report", "report", "report", "lose"]),
        st.sampled_from(["s1", "s2", "s3"]),
        st.sampled_from(["r1", "r2"]),
    ),
    max_size=60,
)


class Fleet:
    """Three shards and the coordinator's decisions about them."""

    def __init__(self) -> None:
        self.registry, self.instruction_id = registry_with("s1", "s2", "s3"), InstructionIds()
        self.shards = {name: FakeShard(name) for name in ("s1", "s2", "s3")}
        self._sequence = count(1)

    def do(self, action: str, name: str, value: str) -> None:
        """One step; illegal ones are skipped."""
        domain = (RACK, value)
        match action:
            case "give":
                self._apply(
                    domains.assign_unowned(
                        self.registry, [name], [Observation(RACK, value, 1)], self.instruction_id
                    )
                )
            case "move":
                self._apply(domains.move(self.registry, domain, name, self.instruction_id))
            case "release" if domain in self.registry.domains:
                self._apply(domains.release(self.registry, domain, self.instruction_id))
            case "report" | "lose":
                self.exchange(name, lost=action == "lose")

    def exchange(self, name: str, lost: bool) -> None:
        """A report, and a reply that may be lost."""
        shard = self.shards[name]
        self._apply(acknowledgements.apply_acks(self.registry, shard.report(), self.instruction_id))
        new_instructions = pending(self.registry, name, (), ())
        for each in new_instructions:
            each.coordinator_term, each.sequence_number = 1, next(self._sequence)
        if not lost:
            shard.apply(wire.ReportAck(instructions=new_instructions))

    def acting(self, value: str) -> list[str]:
        """The shards that may act on a domain."""
        return [name for name, shard in self.shards.items() if (RACK, value) in shard.owns]

    def _apply(self, changes: RowChanges) -> None:
        self.registry.apply(changes)


@settings(max_examples=300)
@given(STEPS)
def test_no_two_shards_ever_act_on_one_domain(steps: list[tuple[str, str, str]]) -> None:
    """Instructions and acknowledgements may be lost or repeated; in the end all are settled."""
    fleet = Fleet()
    for next_removal_step in steps:
        fleet.do(*next_removal_step)
        assert max(len(fleet.acting("r1")), len(fleet.acting("r2"))) <= 1
    for _ in range(4):
        for name in fleet.shards:
            fleet.exchange(name, lost=False)
    for (_, value), row in fleet.registry.domains.items():
        assert row.state is DomainState.OWNED
        assert fleet.acting(value) == [row.shard]
