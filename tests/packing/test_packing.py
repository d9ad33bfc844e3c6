"""How close BigFleet comes to the minimum of machines that hold the pods."""

from __future__ import annotations

import pytest

from bigfleet.model.machine import MachineState
from bigfleet.simulation.runtime.loop import run
from bigfleet.simulation.world import World, running_world
from tests.packing.packing_bound import best_packing
from tests.packing.packing_twin import Twin

MOST_OVER_BEST = 0.10
REST_SECONDS = 400.0


def _held(world: World) -> int:
    return len(world.in_state(MachineState.CONFIGURED))


@pytest.mark.parametrize("seed", [1, 21])
def test_dev_50_is_held_on_few_more_machines_than_the_best_packing(seed: int) -> None:
    """At the end of the soak, and after a long rest, at most a tenth more than the optimum; all
    pods are bound.
    """
    twin = Twin("dev-50", seed)
    best = best_packing(twin.load.workloads, twin.machines, twin.profile.catalog)
    assert best.proven

    async def act() -> tuple[int, int, int]:
        async with running_world(twin.plan()) as world:
            await twin.play(world)
            at_end = _held(world)
            assert await world.converges(REST_SECONDS, 4 * REST_SECONDS)
            at_rest = _held(world)
            assert world.safety.violations == []
            return at_end, at_rest, sum(len(c.unbound()) for c in world.clusters.values())

    at_end, at_rest, pending = run(act)
    print(f"seed {seed}: {at_end} at the end, {at_rest} at rest, best {best.found}")
    assert pending == 0
    assert max(at_end, at_rest) <= (1 + MOST_OVER_BEST) * best.found
