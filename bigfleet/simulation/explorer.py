"""Runs a seed's world: first with faults, then healed, until it converges.

A world with a permanent fault does not converge: the clusters it does not affect must be served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bigfleet.simulation.convergence import convergence_problems, is_wasteful, ownership_problems
from bigfleet.simulation.invariants.steadiness import Steadiness
from bigfleet.simulation.liveness import Attempts, Liveness
from bigfleet.simulation.runtime.loop import run
from bigfleet.simulation.trials.administered import administered_trial
from bigfleet.simulation.trials.events import apply_event
from bigfleet.simulation.trials.harsh import harsh_trial
from bigfleet.simulation.trials.healing import Trial, trial
from bigfleet.simulation.trials.lasting import lasting_trial
from bigfleet.simulation.trials.shards import shards_trial
from bigfleet.simulation.trials.workloads import Event
from bigfleet.simulation.world import World, running_world
from bigfleet.tasks import cancel_and_wait

# Longer than every hold of a generated world; with pending pods, longer than they take to request
# their last additional machine.
QUIET_SECONDS, QUIET_SECONDS_WITH_WAITING_PODS = 100.0, 300.0
# The longest that an unneeded machine is held, also after hold times have grown.
LONGEST_HOLD_SECONDS = 1200.0
# Most worlds converge within 300 s; several drains with ten minutes of grace take longer.
CONVERGENCE_TIMEOUT_SECONDS = 6000.0


@dataclass(frozen=True)
class SeedResult:
    """The result of a seed, which passes without `problems`. `digest` is that of its story."""

    seed: int
    cycles: int
    actions: int
    problems: tuple[str, ...]
    digest: str
    lines: tuple[str, ...]


# Generators of trials, by name.
TRIALS: Mapping[str, Callable[[int], Trial]] = {
    "healing": trial,
    "lasting": lasting_trial,
    "harsh": harsh_trial,
    "shards": shards_trial,
    "administered": administered_trial,
}


def explore(seed: int, trial_name: str = "healing") -> SeedResult:
    """Run the world of `seed`; the same seed always gives the same result."""
    return run(lambda: _play(seed, TRIALS[trial_name](seed)))


async def _play(seed: int, given: Trial) -> SeedResult:
    async with running_world(given.spec) as world:
        for name, value in vars(given.faults).items():
            setattr(world.faults, name, value)
        if given.fault_free and not given.spec.broken.clusters:
            world.safety.steadiness = partial(Steadiness, world.clusters, grows=given.grows)
        await play_events(world, given.events, given.fault_seconds)
        await world.heal()
        ending = _watch_liveness(world, given) if given.watched_seconds else _converge(world)
        found = [*await ending]
        problems = [*world.safety.violations, *found]
        return SeedResult(
            seed,
            len(world.cycles),
            sum(sum(summary.actions.values()) for summary in world.cycles),
            tuple(problems),
            world.story.digest(),
            tuple(world.story.lines()),
        )


async def _converge(world: World) -> Iterable[str]:
    """The problems of a world after it has converged."""
    converged = await world.converges(QUIET_SECONDS, CONVERGENCE_TIMEOUT_SECONDS)
    if converged and any(cluster.unbound() for cluster in world.clusters.values()):
        converged = await world.converges(
            QUIET_SECONDS_WITH_WAITING_PODS, CONVERGENCE_TIMEOUT_SECONDS
        )
    # A machine may be held in its cluster, and once more when it has left it.
    for _ in range(2):
        if not converged or not is_wasteful(world):
            break
        await asyncio.sleep(LONGEST_HOLD_SECONDS)
        converged = await world.converges(QUIET_SECONDS, CONVERGENCE_TIMEOUT_SECONDS)
    return convergence_problems(world, converged)


async def _watch_liveness(world: World, given: Trial) -> Iterable[str]:
    """The problems of a world that cannot converge because of a permanent fault."""
    attempts, liveness = Attempts(world), Liveness(world)
    watch = asyncio.create_task(liveness.watch())
    watch.add_done_callback(world.safety.check_task)
    await play_events(world, given.late, given.watched_seconds)
    await cancel_and_wait(watch)
    return [
        *liveness.problems,
        *attempts.problems(given.watched_seconds),
        *ownership_problems(world),
    ]


async def play_events(world: World, events: Sequence[Event], seconds: float) -> None:
    """Apply each event at its time from now on; takes at least `seconds`."""
    loop = asyncio.get_running_loop()
    begin = loop.time()
    async with asyncio.TaskGroup() as lasting:
        for event in events:
            await asyncio.sleep(max(0.0, begin + event.at_seconds - loop.time()))
            world.story.record(f"-- {event.what} {event.subject}")
            lasting.create_task(apply_event(world, event))
        await asyncio.sleep(max(0.0, begin + seconds - loop.time()))
