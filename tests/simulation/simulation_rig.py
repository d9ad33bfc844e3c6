"""Helpers to create worlds and to compare stories with golden files."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

from bigfleet.engine.snapshot import EngineConfig
from bigfleet.model import resources
from bigfleet.model.machine import HOSTLESS, CapacityType, Machine, MachineState
from bigfleet.simulation.cluster.workload import Workload
from bigfleet.simulation.runtime.loop import run
from bigfleet.simulation.spec import WorldSpec
from bigfleet.simulation.world import World, running_world

RACK, ZONE = "topology.bigfleet/rack", "topology.kubernetes.io/zone"
TYPE = "node.kubernetes.io/instance-type"
GOLDEN = Path(__file__).parent / "golden"
# Set it to write the stories anew; then read the difference.
REWRITE = "REWRITE_GOLDEN"

_GOLDEN_EVENTS = ("decided", "state", "order-failed", "rollup-held", "listing-suspect")


def machines(
    count: int,
    name: str = "m",
    state: MachineState = MachineState.IDLE,
    *,
    rack: str = "r1",
    zone: str = "a",
    amounts: dict[str, str] | None = None,
    capacity_type: CapacityType = CapacityType.BARE_METAL,
    **fields: Any,
) -> list[Machine]:
    """Equal machines in one rack; 4 CPU, 16 GiB by default."""
    units = resources.parse_capacity(
        {"cpu": "4", "memory": "16Gi", "pods": "110", **(amounts or {})}
    )
    values: dict[str, Any] = {
        "instance_type": "small",
        "price_per_hour": 1.0,
        "interruption_probability": 0.0,
        **fields,
    }
    return [
        Machine(
            id=f"{name}-{number:03}",
            state=state,
            zone=zone,
            capacity_type=capacity_type,
            resources=units,
            allocatable=units,
            labels={RACK: rack},
            host="" if state in HOSTLESS else f"{name}-{number:03}",
            **values,
        )
        for number in range(count)
    ]


def pods(name: str, replicas: int, cpu: str = "1", **fields: Any) -> Workload:
    """A Deployment of so many pods."""
    requests = {"cpu": cpu, "memory": "1Gi", **fields.pop("more", {})}
    return Workload(name, replicas, requests, **fields)


def world_spec(fleet: Iterable[Machine], *clusters: str, **fields: Any) -> WorldSpec:
    """A healthy world whose reclaims are not delayed by default."""
    engine = {"reclaim_cap_fraction": 1.0, "reclaim_hold_seconds": 5.0, **fields.pop("engine", {})}
    return WorldSpec([*fleet], clusters or ("east",), engine=EngineConfig(**engine), **fields)


def run_scenario(given: WorldSpec, scenario: Callable[[World], Awaitable[None]]) -> None:
    """Run `scenario` in a new world; a violated invariant fails the test."""

    async def act() -> None:
        async with running_world(given) as world:
            await scenario(world)
            assert world.safety.violations == []

    run(act)


def state_counts(world: World) -> dict[str, int]:
    """The number of machines in each state."""
    states = sorted(machine.state for machine in world.provider.machines().values())
    return {state.name: len([*found]) for state, found in groupby(states)}


def bound(world: World, cluster: str = "east") -> int:
    """The number of bound pods."""
    return sum(1 for pod in world.clusters[cluster].pods.values() if pod.node)


def pending(world: World, cluster: str = "east") -> int:
    """The number of pending pods."""
    return len(world.clusters[cluster].unbound())


def golden(world: World, name: str) -> None:
    """Compare the story, with equal events of one moment on one line, with the golden file."""
    text = "\n".join([*_tale(world), "", *_end(world), ""])
    path = GOLDEN / f"{name}.txt"
    if os.environ.get(REWRITE):
        path.write_text(text)
    assert text == path.read_text(), f"differs from {path.name}; {REWRITE}=1 writes it anew"


def _tale(world: World) -> Iterable[str]:
    moments: dict[tuple[str, str], list[str]] = {}
    for entry in world.story.events:
        if entry.event in _GOLDEN_EVENTS or entry.event.startswith("--"):
            key = f"{entry.at_seconds:7.1f}", entry.text("machine")
            moments.setdefault(key, []).append(str(entry.fields.get("machine", "")))
    for (moment, what), names in moments.items():
        yield f"{moment}  {what}: {_ranges(names)}".removesuffix(": ")


def _ranges(names: list[str]) -> str:
    """Names as ranges: m-000..m-003, x-001."""
    keyed = sorted(
        (name.rpartition("-")[0], int(name.rpartition("-")[2] or 0)) for name in names if name
    )
    runs: list[tuple[str, int, int]] = []
    for prefix, number in keyed:
        if runs and runs[-1][0] == prefix and runs[-1][2] == number - 1:
            runs[-1] = prefix, runs[-1][1], number
        else:
            runs.append((prefix, number, number))
    shown = (f"{p}-{a:03}" if a == b else f"{p}-{a:03}..{p}-{b:03}" for p, a, b in runs)
    return ", ".join(shown)


def _end(world: World) -> Iterable[str]:
    yield f"machines: {state_counts(world)}"
    for name, cluster in world.clusters.items():
        yield f"{name}: {bound(world, name)} pods bound, {len(cluster.unbound())} pending"
    latest = world.shard.cycle.latest if world.shard else None
    for shortfall in latest.decision.shortfalls if latest else ():
        missing = resources.texts(dict(sorted(shortfall.deficit.items())))
        yield f"short: {latest.keys[shortfall.need].cluster} lacks {missing}" if latest else ""
