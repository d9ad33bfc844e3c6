"""Where a gang goes: one domain of its topology key for all of its machines.

The best domain, in this order: it can hold the whole gang; then, among those that can, the one
with most of it to be had without taking from anybody, then the one whose machines already serve
most of it (a healthy gang stays where it is), first the cluster's machines, then the gang's own,
then the domain with the least to spare. While none can, the one that holds most of it, then the
one where the gang already is, then the one with most machines of its cluster. Last, more machines,
smaller name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bigfleet.engine.snapshot import NONE, Flags, Floats, Ints, Longs


@dataclass(frozen=True)
class DomainSupply:
    """Machines in question for a gang of R resources, by flavour: its domain code [F] (NONE: in no
    domain), what one machine holds [F, R], and how many machines [F] may be acquired, already count
    for the need's cluster, of these for the gang itself, may be had in time without evicting
    anybody, and may be taken from others.
    """

    domain: Ints
    units: Longs
    acquirable: Longs
    creditable: Longs
    incumbent: Longs
    spare: Longs
    preemptable: Longs


class Home(NamedTuple):
    """The domain code of a gang, NONE if it has no machine anywhere, and whether all of it fits."""

    domain: int
    whole: bool


def choose_domain(supply: DomainSupply, want: Longs, kept: int = NONE) -> Home:
    """The best domain for a gang that wants `want` [R].

    The domain `kept` is best as long as it can hold the whole gang.
    """
    gentle = supply.acquirable + supply.creditable + supply.spare
    machines = gentle + supply.preemptable
    present = np.flatnonzero((machines > 0) & (supply.domain != NONE))
    if not len(present):
        return Home(NONE, False)
    present = present[np.argsort(supply.domain[present], kind="stable")]
    starts = np.flatnonzero(np.diff(supply.domain[present], prepend=NONE))
    codes, units = supply.domain[present[starts]], supply.units[present]
    count = np.add.reduceat(machines[present], starts)
    joint, free, credited, incumbent = (
        np.add.reduceat(units * number[present][:, None], starts, axis=0)
        for number in (machines, gentle, supply.creditable, supply.incumbent)
    )
    whole: Flags = np.logical_and.reduce(joint >= want, axis=1)
    keys: tuple[Floats, ...]
    if whole.any():
        serving = -_capped(incumbent, want), -_capped(credited, want)
        keys = (_coverage(joint, want), *serving, -_capped(free, want), codes != kept)
    else:
        keys = (-_capped(credited, want), -_capped(incumbent, want), -_capped(joint, want))
    best = np.lexsort((codes, -count, *keys, ~whole))[0]
    return Home(int(codes[best]), bool(whole[best]))


def _coverage(have: Longs, want: Longs) -> Floats:
    """How many times `want` is held, summed over the resources one after the other."""
    score = np.zeros(len(have))
    for at in range(len(want)):
        score += have[:, at] / want[at]
    return score


def _capped(have: Longs, want: Longs) -> Floats:
    return _coverage(np.minimum(have, want), want)
