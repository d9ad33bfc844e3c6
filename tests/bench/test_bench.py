"""The benchmark's fleets are what they say, and its result says which targets were missed."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from bigfleet.bench.__main__ import main
from bigfleet.bench.changes import carry_out, lose_machines, move_demand, with_claims_of
from bigfleet.bench.rows import ROWS, measure
from bigfleet.bench.worlds import World, WorldSpec, make_world
from bigfleet.engine.checks.invariants import violations
from bigfleet.engine.cycle_memory import CycleMemory
from bigfleet.engine.decide import decide
from bigfleet.engine.decision import ActionType
from bigfleet.engine.fit.folding import fold
from bigfleet.engine.snapshot import EngineConfig
from bigfleet.model.machine import MachineState

_ACQUISITIONS = {ActionType.PROVISION, ActionType.BOOTSTRAP}
SPEC = WorldSpec(600, 60, clusters=3, gang_share=0.1, spread_share=0.1)


@pytest.fixture(scope="module")
def at_rest() -> tuple[World, CycleMemory]:
    """A small world whose orders have been carried out three times."""
    world, memory = make_world(SPEC), CycleMemory()
    for _ in range(3):
        decision = decide(world.fleet, world.demand, memory, EngineConfig(), 100.0)
        world, memory = carry_out(world, decision), decision.cycle_memory
    return world, memory


def test_equal_specs_give_equal_worlds() -> None:
    """Revisions are compared on the same fleets."""
    one, other = make_world(SPEC), make_world(SPEC)
    assert list(one.demand.needs) == list(other.demand.needs)
    assert list(one.fleet.flavours) == list(other.fleet.flavours)
    assert (one.fleet.flavour == other.fleet.flavour).all()


def test_a_world_has_what_its_spec_says() -> None:
    """Machines, clusters, gangs and about as many sizes as were asked for."""
    world = make_world(WorldSpec(5_000, 1_000, clusters=20, gang_share=0.3))
    needs = world.demand.needs
    assert len(world.fleet) == 5_000
    assert len(world.fleet.clusters) == 20
    assert sum(need.profile.same_key is not None for need in needs) == 300
    several = [len(need.sizes) for need in needs if len(need.sizes) > 1]
    assert 6 < np.mean(several) < 10


def test_a_world_at_rest_is_served(at_rest: tuple[World, CycleMemory]) -> None:
    """A benchmark of a fleet that lacks machines would measure something else."""
    world, memory = at_rest
    decision = decide(world.fleet, world.demand, memory, EngineConfig(), 101.0)
    assert sum(a.type in _ACQUISITIONS for a in decision.actions) <= 0.02 * SPEC.machines
    assert len(decision.shortfalls) <= 0.1 * len(world.demand.needs)
    assert not list(violations(world.fleet, world.demand, decision))


def test_lost_machines_are_replaced(at_rest: tuple[World, CycleMemory]) -> None:
    """Losses are real: the decision after them acquires machines."""
    world, memory = at_rest
    lost = lose_machines(world, 0.05, np.random.default_rng(1))
    working = (world.fleet.state == MachineState.CONFIGURED).sum()
    assert (lost.fleet.state == MachineState.FAILED).sum() == int(0.05 * working)
    decision = decide(lost.fleet, lost.demand, memory, EngineConfig(), 101.0)
    assert any(a.type in _ACQUISITIONS for a in decision.actions)


def test_moved_demand_changes_only_the_share_that_was_asked_for() -> None:
    """Needs that stay are the same objects: nothing is read again for them."""
    world = make_world(SPEC)
    moved = move_demand(world, 0.1, np.random.default_rng(1))
    same = [a is b for a, b in zip(world.demand.needs, moved.demand.needs, strict=True)]
    assert same.count(False) == int(0.1 * len(same))


def test_claims_follow_their_needs_into_a_folded_demand(
    at_rest: tuple[World, CycleMemory],
) -> None:
    """Folding renumbers the needs; a claim of a need that is gone is dropped."""
    world, _ = at_rest
    folded = fold(world.fleet, world.demand).demand
    fleet = with_claims_of(world.fleet, world.demand, folded)
    of = {(c, n.key): i for i, (c, n) in enumerate(zip(folded.cluster, folded.needs, strict=True))}
    for before, after in zip(world.fleet.last_claimed_by, fleet.last_claimed_by, strict=True):
        if before >= 0:
            key = world.demand.cluster[before], world.demand.needs[before].key
            assert after == of.get(key, -1)


def test_only_decisions_are_timed() -> None:
    """A clock that ticks once per reading sees two ticks a decision: fold, then decide."""
    ticks = count()
    row = replace(ROWS[0], spec=WorldSpec(200, 10, clusters=2))
    measured = measure(row, 3, clock=lambda: float(next(ticks)))
    assert measured.seconds == (2.0, 2.0, 2.0)


@pytest.mark.parametrize(("target", "exit_code"), [(1000.0, 0), (1e-9, 3)])
def test_a_missed_target_fails_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: float, exit_code: int
) -> None:
    """The exit code, the table and latest.json agree."""
    row = replace(ROWS[0], spec=WorldSpec(200, 10, clusters=2), target_seconds=target)
    monkeypatch.setattr("bigfleet.bench.__main__.ROWS", (row,))
    assert main(["--cycles", "2", "--results", str(tmp_path)]) == exit_code
    (record,) = json.loads((tmp_path / "latest.json").read_text())
    assert record["pass"] is (exit_code == 0)
    assert record["name"] == row.name
    assert record["value"] >= record["median"] > 0


def test_an_unknown_row_is_named_with_those_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A typing error does not look like a benchmark without rows."""
    assert main(["--rows", "nonsense"]) == 2
    assert "500K machines" in capsys.readouterr().err
