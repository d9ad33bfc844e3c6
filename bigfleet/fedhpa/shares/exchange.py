"""Orders the writes from the current to the wanted shares, so that each keeps the totals valid.

Max is lowered before it is raised elsewhere, min is raised before it is lowered elsewhere; each as
far as the other allows, in turns. So the controller may crash after any write.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from bigfleet.fedhpa.shares.records import ReplicaBounds, Share

Step = tuple[str, Share | None, Share | None]
State = dict[str, Share]


@dataclass(frozen=True)
class Exchange:
    """The wanted shares of some clusters, which together keep `total`.

    `leaving` are the shares that leaving clusters keep until they are `removable`.
    """

    wanted: Mapping[str, Share]
    leaving: Mapping[str, Share]
    removable: Collection[str]
    total: ReplicaBounds


def ordered(present: Mapping[str, Share], exchange: Exchange) -> list[Step]:
    """Steps (cluster, before, after); incomplete where min and max are too close to each other."""
    state = dict(present)
    steps: list[Step] = []
    while found := [*_lowered(state, exchange), *_raised(state, exchange)]:
        steps += found
    return steps


def _lowered(state: State, exchange: Exchange) -> Iterator[Step]:
    for name, before in list(state.items()):
        to_spare = max(0, sum(share.min for share in state.values()) - exchange.total.min)
        if name in exchange.removable and before.min <= to_spare:
            del state[name]
            yield name, before, None
            continue
        goal = exchange.wanted.get(name) or exchange.leaving[name]
        low = max(min(goal.min, before.min), before.min - to_spare)
        after = Share(low, max(min(goal.max, before.max), low))
        if after != before:
            state[name] = after
            yield name, before, after


def _raised(state: State, exchange: Exchange) -> Iterator[Step]:
    for name, goal in exchange.wanted.items():
        before = state.get(name)
        room = max(0, exchange.total.max - sum(share.max for share in state.values()))
        if before is None and not room:
            continue
        had = before or Share(0, 0)
        high = max(had.max, min(goal.max, had.max + room))
        after = Share(max(had.min, min(goal.min, high)), high)
        if after != had:
            state[name] = after
            yield name, before, after
