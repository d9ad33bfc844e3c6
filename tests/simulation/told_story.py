"""Prints the digest of how a world begins; in a process of its own, for its own hash seed."""

from __future__ import annotations

from bigfleet.simulation.draw_shards import shards_trial
from bigfleet.simulation.explorer import happenings
from bigfleet.simulation.loop import run
from bigfleet.simulation.world import worlds

# Two of its clusters are told something by one decision that also asks for machines for both.
SEED, SECONDS = 15, 24.0


async def told() -> str:
    """The first seconds of the seed's world, with what tenants want in the first ten."""
    given = shards_trial(SEED)
    async with worlds(given.plan) as world:
        for name, value in vars(given.faults).items():
            setattr(world.faults, name, value)
        events = [event for event in given.events if event.at_seconds < SECONDS / 2]
        await happenings(world, events, SECONDS)
        return world.story.digest()


if __name__ == "__main__":
    print(run(told))
