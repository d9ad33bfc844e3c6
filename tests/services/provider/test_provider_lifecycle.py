"""Effects of orders on machines, without I/O."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.model.errors import Fenced, IllegalTransition, InvalidInput
from bigfleet.model.machine import (
    TRANSITIONAL,
    TRANSITIONS,
    CapacityType,
    MachineEvent,
    MachineState,
    violations,
)
from bigfleet.ports.provider import Fence
from bigfleet.services.provider import fencing, lifecycle
from bigfleet.services.provider.config import Latency
from bigfleet.services.provider.fencing import FencingToken
from bigfleet.services.provider.lifecycle import Order, Record, accept, fail, finish
from tests.support.providers import machine

CREATE, DELETE = Order(MachineEvent.CREATE), Order(MachineEvent.DELETE)
DRAIN = Order(MachineEvent.DRAIN, grace_seconds=30)


def configure(cluster: str) -> Order:
    """An order to join `cluster`."""
    return Order(MachineEvent.CONFIGURE, cluster, b"blob", {"key": "value"})


def taken(record: Record, *orders: Order) -> Record:
    """The record after all orders have been accepted and executed."""
    for order in orders:
        record = finish(accept(record, order, 100.0, 5.0))
    return record


def test_an_order_is_due_when_its_latency_has_passed() -> None:
    """The due time and the end of a drain's grace count from the moment of the order."""
    record = taken(Record(machine("m-1")), CREATE, configure("a"))
    draining = accept(record, DRAIN, now_unix_seconds=1000.0, latency_seconds=7.0)
    assert draining.machine.state is MachineState.DRAINING
    assert (draining.due_unix_seconds, draining.grace_ends_unix_seconds) == (1007.0, 1030.0)


def test_a_repeated_order_changes_nothing() -> None:
    """The very same record comes back, under way and at the end, with the same operation id."""
    for order in (CREATE, configure("a"), DRAIN, DELETE):
        before = Record(machine("m-1"))
        if order is not CREATE:
            before = taken(before, CREATE)
        if order is DRAIN:
            before = taken(before, configure("a"))
        under_way = accept(before, order, 1.0, 1.0)
        done = finish(under_way)
        assert accept(under_way, order, 2.0, 9.0) is under_way
        assert accept(done, order, 3.0, 9.0) is done
        assert done.operation_id == under_way.operation_id != before.operation_id


def test_another_cluster_is_another_target() -> None:
    """An order for another cluster is rejected, not treated as a repetition."""
    under_way = accept(taken(Record(machine("m-1")), CREATE), configure("a"), 1.0, 1.0)
    with pytest.raises(IllegalTransition, match="machine m-1 is CONFIGURING, which does not"):
        accept(under_way, configure("b"), 2.0, 1.0)


def test_only_elastic_machines_are_deleted() -> None:
    """A fixed machine is kept, idle or failed."""
    fixed = machine("m-1", capacity_type=CapacityType.BARE_METAL, state=MachineState.IDLE)
    with pytest.raises(IllegalTransition, match="BARE_METAL capacity is fixed"):
        accept(Record(fixed), DELETE, 1.0, 1.0)


def test_a_failed_machine_says_why_and_can_be_deleted() -> None:
    """last_error tells the reason, and goes with the binding when the machine is deleted."""
    under_way = accept(taken(Record(machine("m-1")), CREATE), configure("a"), 1.0, 1.0)
    failed = fail(under_way, "no heartbeat")
    assert failed.machine.state is MachineState.FAILED
    assert (failed.machine.last_error, failed.machine.cluster) == ("no heartbeat", "a")
    deleted = taken(failed, DELETE).machine
    assert (deleted.state, deleted.last_error, deleted.cluster) == (
        MachineState.SPECULATIVE,
        "",
        "",
    )
    assert not deleted.shard_metadata


def test_the_blob_is_dropped_once_used() -> None:
    """It holds a token, so it is kept for no longer than the boot."""
    under_way = accept(taken(Record(machine("m-1")), CREATE), configure("a"), 1.0, 1.0)
    assert under_way.bootstrap_blob == b"blob"
    assert not finish(under_way).bootstrap_blob
    assert not fail(under_way, "no").bootstrap_blob


_ORDERS = st.sampled_from([CREATE, configure("a"), configure("b"), DRAIN, DELETE])
_STEPS = st.lists(st.one_of(_ORDERS, st.sampled_from(["finish", "fail"])), max_size=40)


@given(_STEPS, st.sampled_from(CapacityType))
def test_no_sequence_leaves_the_table(
    steps: list[Order | str], capacity_type: CapacityType
) -> None:
    """Whatever is ordered and whatever happens, each move is in the table and breaks nothing."""
    record = Record(machine("m-1", capacity_type=capacity_type))
    for step in steps:
        before = record
        if isinstance(step, Order):
            try:
                record = accept(record, step, 1.0, 1.0)
            except IllegalTransition:
                continue
        elif record.machine.state in TRANSITIONAL:
            record = finish(record) if step == "finish" else fail(record, "broken")
        moves = {end for (start, _), end in TRANSITIONS.items() if start is before.machine.state}
        assert record is before or record.machine.state in moves
        assert not list(violations(record.machine))
        assert record.operations_started - before.operations_started == (
            1 if isinstance(step, Order) and record is not before else 0
        )


def test_every_operation_has_an_end() -> None:
    """Whatever can be under way has a way to succeed, so that nothing stays there for ever."""
    assert set(lifecycle.SUCCESS) == TRANSITIONAL == {way for way, _ in lifecycle.ORDERS.values()}


def test_there_are_four_orders_and_each_succeeds_in_one_way() -> None:
    """They follow from the table: an order leads to a state that ends by itself."""
    calls = {each.name.capitalize() for each in lifecycle.ORDERS}
    assert calls == {"Create", "Configure", "Drain", "Delete"}
    ends = [event for state, event in TRANSITIONS if state in TRANSITIONAL]
    assert Counter(ends) == {MachineEvent.FAIL: 4} | dict.fromkeys(lifecycle.SUCCESS.values(), 1)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=20))
def test_only_newer_fencing_tokens_pass(orders: list[tuple[int, int]]) -> None:
    """What passes is strictly increasing in (epoch, sequence), whatever order it arrives in."""
    newest: FencingToken | None = None
    passed = []
    for epoch, sequence in orders:
        try:
            newest = fencing.check(Fence("s", epoch, sequence), "m-1", newest)
        except Fenced:
            continue
        passed.append((epoch, sequence))
    assert passed == sorted(set(passed))
    assert not orders or passed[-1] == max(orders)


def test_latency_is_reproducible_and_runs_through_its_two_points() -> None:
    """Half of all samples lie below the median and 1 % above the p99; the seed decides each."""
    latency = Latency(median_seconds=2.0, p99_seconds=8.0)
    samples = [latency.sample_seconds(7, f"m-{n}", 1) for n in range(4000)]
    assert samples == [latency.sample_seconds(7, f"m-{n}", 1) for n in range(4000)]
    assert samples[0] not in (
        latency.sample_seconds(8, "m-0", 1),
        latency.sample_seconds(7, "m-0", 2),
    )
    assert 0.47 < sum(s < 2.0 for s in samples) / 4000 < 0.53
    assert 0.004 < sum(s > 8.0 for s in samples) / 4000 < 0.016
    assert Latency(3.0, 3.0).sample_seconds(7, "m-0", 1) == pytest.approx(3.0)
    assert Latency().sample_seconds(7, "m-0", 1) == 0.0


@pytest.mark.parametrize(("median", "p99"), [(-1.0, 1.0), (2.0, 1.0), (1.0, float("inf"))])
def test_an_impossible_latency_is_refused(median: float, p99: float) -> None:
    """The sentence says what would be accepted."""
    with pytest.raises(InvalidInput, match="needs 0 <= median <= p99"):
        Latency(median, p99)
