"""Where a gang goes: one domain of its topology key for all of its machines.

The best domain, in this order: it can hold the whole gang; then, among those that can, the one
whose machines already serve most of it (a healthy gang stays where it is), first the cluster's
machines, then the gang's own, then the domain with the least to spare. While none can, the one
that holds most of it, then the one where the gang already is, then the one with most machines of
its cluster. Last, more machines, smaller name.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigfleet.engine.snapshot import NONE, Floats, Ints, Longs


@dataclass(frozen=True)
class DomainSupply:
    """Machines in question for a gang of R resources, by flavour: its domain code [F] (NONE: in no
    domain), what one machine holds [F, R], and how many machines [F] may be acquired, already count
    for the need's cluster, and of these for the gang itself.
    """

    domain: Ints
    units: Longs
    acquirable: Longs
    creditable: Longs
    incumbent: Longs


def choose_domain(supply: DomainSupply, want: Longs) -> int | None:
    """The code of the best domain for a gang that wants `want` [R]; None if there is no machine."""
    machines = supply.acquirable + supply.creditable
    present = np.flatnonzero((machines > 0) & (supply.domain != NONE))
    if not len(present):
        return None
    codes, domain = np.unique(supply.domain[present], return_inverse=True)
    units = supply.units[present]
    count = _totals(domain, machines[present][:, None], len(codes))[:, 0]
    joint, credited, incumbent = (
        _totals(domain, units * number[present][:, None], len(codes))
        for number in (machines, supply.creditable, supply.incumbent)
    )
    satisfiable = (joint >= want).all(axis=1)
    keys: tuple[Floats, ...]
    if satisfiable.any():
        keys = (_coverage(joint, want), -_capped(incumbent, want), -_capped(credited, want))
    else:
        keys = (-_capped(credited, want), -_capped(incumbent, want), -_capped(joint, want))
    return int(codes[np.lexsort((codes, -count, *keys, ~satisfiable))[0]])


def _totals(domain: Longs, units: Longs, domains: int) -> Longs:
    totals = np.zeros((domains, units.shape[1]), np.int64)
    np.add.at(totals, domain, units)
    return totals


def _coverage(have: Longs, want: Longs) -> Floats:
    """How many times `want` is held, summed over the resources one after the other."""
    score = np.zeros(len(have))
    for at in range(len(want)):
        score += have[:, at] / want[at]
    return score


def _capped(have: Longs, want: Longs) -> Floats:
    return _coverage(np.minimum(have, want), want)
