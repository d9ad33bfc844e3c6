"""Random histories of a fleet: loads, outages, crashes, lost answers, changes by the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from bigfleet.fedhpa.shares import ReplicaBounds, Share
from tests.fedhpa.fleet_model import SimCluster, SimFleet, change_load, random_fleet

PASSES_WHILE_DISTURBED = 12
# What the guide promises: under steady load moves stop within so many passes that write; where min
# and max are close, shares can only move in steps of what lies between them.
PASSES_UNTIL_STEADY = 15
PASSES_PER_STEP = 3
# And a cluster that was found full is tried again, twice as late each time.
PASSES_PER_RETRY = 3
_STEADY_SECONDS, _STILL_SECONDS = 6000.0, 5 * 3600.0


def conservative_share(before: Share | None, after: Share | None) -> Share:
    """What must be counted for a cluster while a write's outcome is not known."""
    old, new = before or Share(0, 0), after or Share(0, 0)
    return Share(min(old.min, new.min), max(old.max, new.max))


def _anybody(random: Random, fleet: SimFleet) -> SimCluster:
    return random.choice(fleet.clusters)


def _load(random: Random, fleet: SimFleet) -> None:
    change_load(random, _anybody(random, fleet))


def _cut(random: Random, fleet: SimFleet) -> None:
    _anybody(random, fleet).reachable = False


def _heal(random: Random, fleet: SimFleet) -> None:
    c = _anybody(random, fleet)
    c.reachable, c.believed = True, None


def _select(random: Random, fleet: SimFleet) -> None:
    c = _anybody(random, fleet)
    c.selected = not c.selected


def _lose_hpa(random: Random, fleet: SimFleet) -> None:
    c = _anybody(random, fleet)
    if c.reachable and c.share:
        c.deleted_share, c.share = c.share, None


def _metrics(random: Random, fleet: SimFleet) -> None:
    c = _anybody(random, fleet)
    c.measuring = not c.measuring


def _change_bounds(random: Random, fleet: SimFleet) -> None:
    min_replicas = random.randint(1, 20)
    fleet.total = ReplicaBounds(min_replicas, min_replicas + random.randint(0, 60))


def _lost_write(random: Random, fleet: SimFleet) -> None:
    """Some writes are done; the last may be or not, no answer comes, its cluster is cut off."""
    writes = fleet.plan().writes
    if not writes:
        return
    last = random.randrange(len(writes))
    for write in writes[:last]:
        fleet.apply(write)
    write = writes[last]
    if random.random() < 0.5:
        fleet.apply(write)
    c = fleet.cluster(write.cluster)
    c.believed, c.reachable = conservative_share(write.before, write.after), False


EVENTS: Mapping[str, Callable[[Random, SimFleet], None]] = {
    "load": _load,
    "cut": _cut,
    "heal": _heal,
    "select": _select,
    "lose-hpa": _lose_hpa,
    "metrics": _metrics,
    "bounds": _change_bounds,
    "lost-write": _lost_write,
}
_WEIGHTS = (8, 1, 2, 1, 1, 1, 1, 1)


def disturbed(seed: int) -> SimFleet:
    """A fleet after a random history; every write in it kept the invariants."""
    random = Random(seed)
    fleet = random_fleet(random)
    for _ in range(PASSES_WHILE_DISTURBED):
        for _ in range(random.randint(0, 2)):
            name = random.choices(list(EVENTS), _WEIGHTS)[0]
            EVENTS[name](random, fleet)
        fleet.reconcile(
            random.choice([1.0, 15.0, 60.0, 200.0]), random.choice([None, None, 0, 1, 2])
        )
    return fleet


def healed(fleet: SimFleet) -> SimFleet:
    """All clusters reachable and selected, their HPAs reporting."""
    for c in fleet.clusters:
        c.reachable = c.selected = c.measuring = True
        c.believed = None
    return fleet


def passes_allowed(total: ReplicaBounds) -> int:
    """Within how many passes that write anything moves stop under steady load."""
    between = total.max - total.min
    return PASSES_UNTIL_STEADY + (PASSES_PER_STEP * -(-total.min // between) if between else 0)


def rest(fleet: SimFleet) -> tuple[int, int]:
    """Passes that wrote until steady load had lasted long; and after that, but for retries."""
    wrote = fleet.run(_STEADY_SECONDS, 30.0)
    full = sum(c.capacity_limit is not None for c in fleet.clusters)
    return wrote, max(0, fleet.run(_STILL_SECONDS, 100.0) - PASSES_PER_RETRY * full)
