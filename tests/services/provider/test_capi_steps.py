"""What is done next about a machine, from its record and its Machine alone."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from bigfleet.model.machine import BOUND, MachineEvent, MachineState
from bigfleet.services.provider.capi import catalog
from bigfleet.services.provider.capi.objects import OPERATION, MachineView
from bigfleet.services.provider.capi.steps import Act, Limits, Step, next_step
from bigfleet.services.provider.lifecycle import Record
from tests.services.provider.capi_rig import ELASTIC, OWN, offerings

S, E = MachineState, MachineEvent
OFFERED = catalog.parse(offerings(), "example")
ORDERED, BOOT, REMOVAL, REPAIR = 1000.0, 3600.0, 1800.0, 60.0
LIMITS = Limits(OFFERED.offerings["rack1"], REPAIR)


def record(state: MachineState, machine_id: str = OWN) -> Record:
    """Of a machine in that state since an order at ORDERED."""
    machine = OFFERED.machine(machine_id)
    assert machine is not None
    cluster = "east" if state in BOUND else ""
    machine = replace(machine, state=state, cluster=cluster)
    return Record(machine, 2, ORDERED, ORDERED)


def view(ready: bool = False, leaving: bool = False, operation: int = 2) -> MachineView:
    """Its Machine."""
    metadata: dict[str, object] = {"name": OWN}
    metadata["annotations"] = {OPERATION: f"{OWN}.{operation}"}
    if leaving:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    conditions = [{"type": "NodeReady", "status": "True" if ready else "False", "message": "boots"}]
    status = {"phase": "Running", "conditions": conditions}
    return msgspec.convert({"metadata": metadata, "status": status}, MachineView)


def step(state: MachineState, found: MachineView | None, at: float = ORDERED) -> Step:
    return next_step(record(state), found, at, LIMITS)


@pytest.mark.parametrize(
    ("state", "found", "act", "event"),
    [
        (S.CREATING, None, Act.SAVE, E.CREATED),
        (S.CONFIGURING, None, Act.CREATE, None),
        (S.CONFIGURING, view(), Act.WAIT, None),
        (S.CONFIGURING, view(ready=True), Act.SAVE, E.JOINED),
        (S.CONFIGURING, view(ready=True, operation=1), Act.SAVE, E.FAIL),
        (S.CONFIGURING, view(leaving=True), Act.SAVE, E.FAIL),
        (S.CONFIGURED, view(), Act.WAIT, None),
        (S.CONFIGURED, None, Act.SAVE, E.FAIL),
        (S.CONFIGURED, view(ready=True, leaving=True), Act.SAVE, E.FAIL),
        (S.DRAINING, view(), Act.REMOVE, E.DRAINED),
        (S.DRAINING, view(leaving=True), Act.WAIT, None),
        (S.DRAINING, None, Act.REMOVE, E.DRAINED),
        (S.DELETING, None, Act.REMOVE, E.DELETED),
        (S.FAILED, view(), Act.REMOVE, None),
        (S.FAILED, view(leaving=True), Act.WAIT, None),
        (S.IDLE, None, Act.WAIT, None),
        (S.IDLE, view(), Act.WAIT, None),
        (S.SPECULATIVE, None, Act.WAIT, None),
    ],
)
def test_each_state_and_machine_has_one_next_step(
    state: MachineState, found: MachineView | None, act: Act, event: MachineEvent | None
) -> None:
    """A Node that is not Ready any more is the operator's business: CONFIGURED stays so."""
    taken = step(state, found)
    assert (taken.act, taken.event) == (act, event)
    assert (taken.end is None) == (event is None)


def test_a_join_that_takes_too_long_has_failed_with_what_it_waits_for() -> None:
    """Looked at again at that moment, if nothing changes before."""
    assert step(S.CONFIGURING, view(), ORDERED + BOOT - 1).until == ORDERED + BOOT
    late = step(S.CONFIGURING, view(), ORDERED + BOOT)
    assert late.end is not None
    assert late.end.machine.last_error == (
        "not Ready within 3600 s: Machine in phase Running; NodeReady: boots"
    )
    assert late.end.machine.cluster == "east"


def test_a_join_that_was_done_while_the_provider_was_down_has_not_failed() -> None:
    """Pods run there by now."""
    assert step(S.CONFIGURING, view(ready=True), ORDERED + BOOT).event is E.JOINED
    assert step(S.CONFIGURING, view(ready=True, operation=1), ORDERED + BOOT).event is E.FAIL


def test_a_removal_that_takes_too_long_has_failed() -> None:
    """Not one that was done while the provider was down: nothing is left of that."""
    late = ORDERED + REMOVAL
    assert step(S.DRAINING, view(leaving=True), late).event is E.FAIL
    assert step(S.DRAINING, None, late).event is E.DRAINED
    stuck = replace(LIMITS, trouble="Metal3Machine rack1-0 is being deleted")
    failed = next_step(record(S.DRAINING), None, late, stuck).end
    assert failed is not None
    assert "Metal3Machine rack1-0 is being deleted" in failed.machine.last_error


def test_a_failed_host_is_idle_after_its_repair_and_a_failed_instance_waits_for_an_order() -> None:
    waiting = step(S.FAILED, None, ORDERED + REPAIR - 1)
    assert (waiting.act, waiting.until) == (Act.WAIT, ORDERED + REPAIR)
    assert step(S.FAILED, None, ORDERED + REPAIR).event is E.RECOVER
    bought = next_step(record(S.FAILED, ELASTIC), None, ORDERED + REPAIR, LIMITS)
    assert (bought.act, bought.until) == (Act.WAIT, None)
