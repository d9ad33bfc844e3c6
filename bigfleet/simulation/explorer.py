"""Plays a seed's world: faults first, then health, and then it must come to rest.

Where something stays broken there is no rest: the others must be served all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bigfleet.simulation.draw import Trial, trial
from bigfleet.simulation.draw_harsh import harsh_trial
from bigfleet.simulation.draw_lasting import lasting_trial
from bigfleet.simulation.draw_shards import shards_trial
from bigfleet.simulation.draw_workloads import Event
from bigfleet.simulation.happenings import happen
from bigfleet.simulation.loop import run
from bigfleet.simulation.rest import is_wasteful, unrest, whose
from bigfleet.simulation.served import Attempts, Liveness
from bigfleet.simulation.steadiness import Steadiness
from bigfleet.simulation.world import World, worlds
from bigfleet.tasks import cancel_and_wait

# Longer than every hold that a drawn world has; with pods that wait, longer than they take to ask
# for the last of their additional machines.
QUIET_SECONDS, QUIET_SECONDS_WITH_WAITING_PODS = 100.0, 300.0
# What nobody needs is held for so long at most, also where a cluster has learnt to hold on longer.
LONGEST_HOLD_SECONDS = 1200.0
# Most worlds rest within 300 s; ten minutes of grace, one after the other, take longer.
REST_WITHIN_SECONDS = 6000.0


@dataclass(frozen=True)
class Outcome:
    """What a seed came to: no `problems` is a pass. `digest` is that of its whole story."""

    seed: int
    cycles: int
    actions: int
    problems: tuple[str, ...]
    digest: str
    lines: tuple[str, ...]


# How a seed becomes a world, by name.
KINDS: Mapping[str, Callable[[int], Trial]] = {
    "healing": trial,
    "lasting": lasting_trial,
    "harsh": harsh_trial,
    "shards": shards_trial,
}


def explore(seed: int, kind: str = "healing") -> Outcome:
    """Play the world of `seed`; the same seed gives the same Outcome, everywhere."""
    return run(lambda: _play(seed, KINDS[kind](seed)))


async def _play(seed: int, given: Trial) -> Outcome:
    async with worlds(given.plan) as world:
        for name, value in vars(given.faults).items():
            setattr(world.faults, name, value)
        if given.calm and not given.plan.broken.clusters:
            world.safety.steadiness = partial(Steadiness, world.clusters, grows=given.grows)
        await happenings(world, given.events, given.fault_seconds)
        await world.heal()
        ending = _watched(world, given) if given.watched_seconds else _at_rest(world)
        found = [*await ending]
        problems = [*world.safety.violations, *found]
        return Outcome(
            seed,
            len(world.cycles),
            sum(sum(cycled.actions.values()) for cycled in world.cycles),
            tuple(problems),
            world.story.digest(),
            tuple(world.story.lines()),
        )


async def _at_rest(world: World) -> Iterable[str]:
    """What is wrong with a world once nothing moves in it."""
    rests = await world.comes_to_rest(QUIET_SECONDS, REST_WITHIN_SECONDS)
    if rests and any(cluster.unbound() for cluster in world.clusters.values()):
        rests = await world.comes_to_rest(QUIET_SECONDS_WITH_WAITING_PODS, REST_WITHIN_SECONDS)
    if rests and is_wasteful(world):
        await asyncio.sleep(LONGEST_HOLD_SECONDS)
        rests = await world.comes_to_rest(QUIET_SECONDS, REST_WITHIN_SECONDS)
    return unrest(world, rests)


async def _watched(world: World, given: Trial) -> Iterable[str]:
    """What is wrong with a world that cannot come to rest, since something stays broken in it."""
    attempts, liveness = Attempts(world), Liveness(world)
    watch = asyncio.create_task(liveness.watch())
    await happenings(world, given.late, given.watched_seconds)
    await cancel_and_wait(watch)
    return [*liveness.problems, *attempts.problems(given.watched_seconds), *whose(world)]


async def happenings(world: World, events: Sequence[Event], seconds: float) -> None:
    """Each event at its time from now on, and at least so many seconds."""
    loop = asyncio.get_running_loop()
    begin = loop.time()
    async with asyncio.TaskGroup() as lasting:
        for event in events:
            await asyncio.sleep(max(0.0, begin + event.at_seconds - loop.time()))
            world.story.tell(f"-- {event.what} {event.subject}")
            lasting.create_task(happen(world, event))
        await asyncio.sleep(max(0.0, begin + seconds - loop.time()))
