"""The benchmark's fleets are what they say, and its result says which targets were missed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from bigfleet.bench.__main__ import main
from bigfleet.bench.changes import carry_out, lose_machines, move_demand, with_claims_of
from bigfleet.bench.decisions import Decisions
from bigfleet.bench.measured import Measured, Row, Samples
from bigfleet.bench.rows import ROWS
from bigfleet.bench.table import growth
from bigfleet.bench.worlds import World, WorldSpec, make_world
from bigfleet.engine.checks.invariants import violations
from bigfleet.engine.cycle_memory import CycleMemory
from bigfleet.engine.decide import decide
from bigfleet.engine.decision import ActionType
from bigfleet.engine.fit.folding import fold
from bigfleet.engine.snapshot import EngineConfig
from bigfleet.model.machine import MachineState

_ACQUISITIONS = {ActionType.PROVISION, ActionType.BOOTSTRAP}
SMALL = Decisions("small", WorldSpec(200, 10, clusters=2), 0.01, 0.01)
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


def _ticks() -> Callable[[], float]:
    """A clock that ticks once for each reading."""
    ticks = count()
    return lambda: float(next(ticks))


def test_only_decisions_are_timed_and_their_parts_add_up() -> None:
    """Folding, and each part that the engine names; two of them are its headroom's."""
    samples = SMALL.measure(3, _ticks())
    assert samples.seconds == (8.0, 8.0, 8.0)
    parts = {name: each[0] for name, each in samples.parts.items()}
    assert parts == {
        "fold": 1.0, "prepare": 1.0, "assign": 1.0, "headroom": 2.0, "reclaim": 1.0,
        "preempt": 1.0, "conclude": 1.0,
    }  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_each_row_measures_what_it_says(row: Row) -> None:
    """A hundredth of it, or a thousandth of the largest."""
    row = row.scaled(0.001 if "100K needs" in row.name or "42K" in row.name else 0.01)
    samples = row.measure(1, _ticks())
    assert samples.needs > 0
    assert len(samples.seconds) == 1
    assert samples.seconds[0] > 0
    if isinstance(row, Decisions) and row.lost >= 0.1:
        assert samples.orders > 0


def test_a_row_without_the_orders_that_it_is_about_says_nothing() -> None:
    """A decision of five thousand bindings is not fast because it has none."""
    row = replace(SMALL, lost=0.0, changed=0.0, least_orders=1)
    measured = Measured(row, row.measure(2, _ticks()))
    assert measured.samples.invalid == "a decision had 0 orders, not 1"
    assert not measured.passes


def test_growth_is_a_power_of_the_number_of_machines() -> None:
    """Ten times the machines in a hundred times the time are quadratic."""
    found = [
        Measured(Decisions(f"{n} machines, 1 %", WorldSpec(n, 1), 0, 0), Samples((seconds,)))
        for n, seconds in ((1_000, 0.01), (10_000, 1.0))
    ]
    title, small, large = growth(found)
    assert title == "growth, 1 %"
    assert small.split() == ["1,000", "machines", "10.0", "ms", "#"]
    assert large.split() == ["10,000", "machines", "1000.0", "ms", "#" * 40, "^2.00"]


def test_a_revision_takes_as_long_as_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both sides are processes of their own, here without compiled kernels, and decide the same."""
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    options = ["--rows", "small", "--cycles", "3", "--scale", "0.4", "--base", "HEAD"]
    assert main([*options, "--results", str(tmp_path)]) in (0, 4)  # others may disturb one side
    (record,) = json.loads((tmp_path / "latest.json").read_text())
    assert 0.2 < record["baselineRatio"] < 5.0


def test_a_slower_revision_fails_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a quarter and more; the table says by how much, and what it should be read with."""
    monkeypatch.setattr("bigfleet.bench.__main__.ROWS", (SMALL,))
    monkeypatch.setattr("bigfleet.bench.base.ratio", lambda *_: (1.26, "the base is another"))
    options = ["--cycles", "2", "--base", "HEAD", "--results", str(tmp_path)]
    assert main(options) == 4
    out = capsys.readouterr().out
    assert " 1.26   SLOWER" in out
    assert "the base is another" in out


def test_a_base_that_is_no_revision_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error is git's, and nothing is measured."""
    options = ["--rows", "small", "--base", "no-such-revision", "--results", str(tmp_path)]
    assert main(options) == 2
    assert "no-such-revision" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("target", "exit_code"), [(1000.0, 0), (1e-9, 3)])
def test_a_missed_target_fails_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: float, exit_code: int
) -> None:
    """The exit code, the table and latest.json agree."""
    row = replace(SMALL, target_seconds=target)
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
