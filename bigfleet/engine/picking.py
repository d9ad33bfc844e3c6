"""Taking machines from an ordered list until what is missing is covered.

Machines are given as their flavours; results are positions in that list.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.snapshot import Flags, Floats, Ints, Longs

Positions = NDArray[np.intp]

_FIRST_BLOCK = 64  # most needs are covered by few machines; blocks double from here


def uncovered(missing: Longs, units: Longs) -> Longs:
    """What is left of `missing` [R] after machines with `units` [n, R]; never below zero."""
    left: Longs = np.maximum(missing - units.sum(axis=0), 0)
    return left


def take_until_covered(flavours: Ints, units: Longs, missing: Longs) -> Positions:
    """Take whole machines in order until `missing` is covered, passing over those that hold none
    of what is still missing. `units` is per flavour [F, R].
    """
    taken: list[Positions] = [np.empty(0, np.intp)]
    start, block = 0, _FIRST_BLOCK
    while start < len(flavours) and missing.any():
        of_block = units[flavours[start : start + block]]
        positions = _take_from_block(of_block, missing)
        missing = uncovered(missing, of_block[positions])
        taken.append(positions + start)
        start, block = start + block, block * 2
    return np.concatenate(taken)


def _take_from_block(units: Longs, missing: Longs) -> Positions:
    taken: list[Positions] = [np.empty(0, np.intp)]
    left: Positions = np.arange(len(units))
    while missing.any():
        left = left[(units[left][:, missing > 0] > 0).any(axis=1)]
        if not len(left):
            break
        stop = _first_completion(units[left], missing)
        taken.append(left[:stop])
        missing = uncovered(missing, units[left[:stop]])
        left = left[stop:]
    return np.concatenate(taken)


def _first_completion(units: Longs, missing: Longs) -> int:
    """How many machines until one more resource is covered; all, if none ever is."""
    open_: Flags = missing > 0
    reached = (units[:, open_].cumsum(axis=0) >= missing[open_]).any(axis=1)
    return int(reached.argmax()) + 1 if reached.any() else len(units)


def take_and_fit(flavours: Ints, units: Longs, costs: Floats, missing: Longs) -> Positions:
    """`take_until_covered`, but the machine that completes it is the best fit of all that are
    left. `costs` are per machine.
    """
    positions = take_until_covered(flavours, units, missing)
    if uncovered(missing, units[flavours[positions]]).any():
        return positions
    rest = uncovered(missing, units[flavours[positions[:-1]]])
    free = np.ones(len(flavours), np.bool_)
    free[positions[:-1]] = False
    last = best_fit(np.flatnonzero(free), flavours, units, costs, rest)
    return positions if last is None else np.append(positions[:-1], last)


def best_fit(
    candidates: Positions, flavours: Ints, units: Longs, costs: Floats, rest: Longs
) -> int | None:
    """Of `candidates`, the cheapest machine that alone covers `rest`; of equally cheap ones the
    smallest, then the first. None if no single one does. `costs` are per machine.
    """
    sufficient: Flags = np.logical_and.reduce(units >= rest, axis=1)
    fitting = candidates[sufficient[flavours[candidates]]]
    if not len(fitting):
        return None
    cheapest = fitting[costs[fitting] == costs[fitting].min()]
    sizes = _sizes(units, rest)[flavours[cheapest]]
    return int(cheapest[sizes.argmin()])


def _sizes(units: Longs, rest: Longs) -> Floats:
    """How many times each flavour holds `rest`, summed over its resources one after the other."""
    sizes = np.zeros(len(units))
    for at in np.flatnonzero(rest):
        sizes += units[:, at] / rest[at]
    return sizes


def without_redundant(
    taken: Positions, flavours: Ints, units: Longs, costs: Floats, missing: Longs
) -> Positions:
    """Drop machines that the others make superfluous, dearest first, of equals the latest taken.

    A late, large machine can make an early, small one useless; keeping it would only have it
    reclaimed as soon as it is there. `costs` are per machine.
    """
    slack: Longs = units[flavours[taken]].sum(axis=0) - missing
    if slack.min() < 0:
        return taken
    kept: Flags = np.ones(len(taken), np.bool_)
    for at in np.lexsort((-np.arange(len(taken)), -costs[taken])):
        own = units[flavours[taken[at]]]
        if (own <= slack).all():
            kept[at] = False
            slack = slack - own
    return taken[kept]
