"""Which gangs are served as gangs though a machine exists that could hold them whole. Pure.

Small gangs are counted as single pods of a folded need, since any machine that holds one is its
topology domain. If all such machines are in use, a folded gang would wait for one, however many
smaller machines of one domain are free. So from a folded need that has lacked machines for some
cycles one gang a cycle is taken out, until the rest has machines; it stays a gang for as long as it
is requested. So does a gang that has machines of its own: a larger machine that becomes free later
must not make it move.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from bigfleet.engine.decision import Decision, Shortfall
from bigfleet.engine.fit.folding import FoldedDemand
from bigfleet.engine.need_columns import need_columns_of
from bigfleet.engine.snapshot import Demand, Flags
from bigfleet.model.group import FoldedGangs, PodGroup
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.need import Need, NeedKey
from bigfleet.services.shard.records.wants import KeysOf, Wants

# Machines that are about to be free, or are being created, get so long.
UNFOLD_AFTER_CYCLES = 5


def with_machines(asked: Demand, wants: Wants) -> Flags:
    """Which needs [N] of the numbered demand are gangs that have machines under their own key."""
    found = wants.have_machines(asked) & need_columns_of(asked.needs).gang
    for at in np.flatnonzero(found).tolist():
        found[at] = isinstance(asked.needs[at].group, PodGroup)
    return found


def next_unfolded(
    unfolded: frozenset[NeedKey],
    asked: Demand,
    folding: FoldedDemand,
    names: Sequence[str],
    decision: Decision,
) -> frozenset[NeedKey]:
    """The gangs that are not to be folded in the next cycle, after this one's `decision`.

    `names` has the clusters by number.
    """
    added = [
        index
        for shortfall in decision.shortfalls
        if _waits_in_vain(folding.demand, decision, shortfall)
        for index in _one_gang(asked, folding, shortfall)
    ]
    if not (unfolded or added):
        return unfolded
    keys, gangs = KeysOf(asked, names), np.flatnonzero(need_columns_of(asked.needs).gang).tolist()
    return frozenset(keys[at] for at in gangs if at in added or keys[at] in unfolded)


def _waits_in_vain(served: Demand, decision: Decision, shortfall: Shortfall) -> bool:
    group = served.needs[shortfall.need].group
    return (
        isinstance(group, FoldedGangs)
        and group.topology_key != HOSTNAME_LABEL  # one machine is all that it may have
        and shortfall.age_cycles > UNFOLD_AFTER_CYCLES
        and shortfall.need not in decision.at_ceiling
    )


def _one_gang(asked: Demand, folding: FoldedDemand, shortfall: Shortfall) -> Iterator[int]:
    """The index of the last gang of the need that is as large as one that lacks a machine."""
    short = [_amounts(size.amounts) for size in shortfall.sizes]
    for index in np.flatnonzero(folding.served_by == shortfall.need)[::-1].tolist():
        if _total(asked.needs[index]) in short:
            yield index
            return


def _total(gang: Need) -> dict[str, int]:
    return _amounts(gang.aggregate.items())


def _amounts(amounts: Iterable[tuple[str, int]]) -> dict[str, int]:
    return {name: amount for name, amount in amounts if amount}
