"""Prints the digest of how a world begins; in a process of its own, for its own hash seed."""

from __future__ import annotations

from bigfleet.simulation.explorer import play_events
from bigfleet.simulation.runtime.loop import run
from bigfleet.simulation.trials.shards import shards_trial
from bigfleet.simulation.world import running_world

# Two of its clusters are told something by one decision that also asks for machines for both.
SEED, SECONDS = 15, 24.0


async def digest() -> str:
    """The first seconds of the seed's world, with what tenants want in the first ten."""
    given = shards_trial(SEED)
    async with running_world(given.spec) as world:
        for name, value in vars(given.faults).items():
            setattr(world.faults, name, value)
        events = [event for event in given.events if event.at_seconds < SECONDS / 2]
        await play_events(world, events, SECONDS)
        return world.story.digest()


if __name__ == "__main__":
    print(run(digest))
