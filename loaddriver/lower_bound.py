"""What any set of machines must cost at least that holds given pods: a bound by linear duality.

A linear program that shares pods out among machines as if both could be cut at will costs no more
than any real packing. Any non-negative prices of resources, per group of machines that the same
pods may use, give a value that is no higher than that program's optimum: what the pods are worth at
these prices, each where it is worth least, less what the machines are worth beyond what they cost.
So no solver is needed to trust the result; a better search only brings it nearer to the optimum.

Racks, spreading and keeping apart are left out, which can only make the bound lower.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loaddriver.fit import Offer, PodNeeds

Array = NDArray[np.float64]
_ROUNDS = 1500
_FIRST_STEP, _LAST_STEP = 0.1, 0.001
# Of Adam, the usual ones.
_MOMENTUM, _VARIANCE_MOMENTUM, _TINY = 0.9, 0.999, 1e-12


def least_dollars_per_hour(pods: Mapping[PodNeeds, int], offers: Mapping[Offer, int]) -> float:
    """No selection of `offers`, of which there are so many each, holds `pods` for less."""
    costs = np.array([offer.dollars_per_hour for offer in offers], dtype=np.float64)
    return _bound(pods, offers, costs)


def least_machines(pods: Mapping[PodNeeds, int], offers: Mapping[Offer, int]) -> int:
    """No selection of `offers` with fewer machines holds `pods`."""
    return math.ceil(_bound(pods, offers, np.ones(len(offers))) - 1e-6)


@dataclass(frozen=True)
class _Problem:
    """Arrays over pods of each kind (g), offers (m), groups of offers (k) and resources (r).

    `sizes` (g, r), `counts` (g), `usable` (g, k), `rooms` (m, r), `group` (m), `costs` (m),
    `supply` (m).
    """

    sizes: Array
    counts: Array
    usable: NDArray[np.bool_]
    rooms: Array
    group: NDArray[np.int64]
    costs: Array
    supply: Array

    def value(self, prices: Array) -> tuple[float, Array]:
        """The bound that `prices` (k, r) give, and in which direction it rises most."""
        worth = np.where(self.usable, self.sizes @ prices.T, np.inf)
        where = worth.argmin(axis=1)
        own = np.arange(len(where))
        over = np.einsum("mr,mr->m", self.rooms, prices[self.group]) - self.costs
        gains = over > 0
        value = self.counts @ worth[own, where] - self.supply[gains] @ over[gains]
        slope = np.zeros_like(prices)
        np.add.at(slope, where, self.sizes * self.counts[:, None])
        np.add.at(slope, self.group[gains], -self.rooms[gains] * self.supply[gains, None])
        return float(value), slope


def _bound(pods: Mapping[PodNeeds, int], offers: Mapping[Offer, int], costs: Array) -> float:
    problem = _problem(pods, offers, costs)
    if problem is None:
        return 0.0
    groups, names = problem.usable.shape[1], problem.sizes.shape[1]
    prices, best = np.full((groups, names), 0.5 / names), 0.0
    momentum, variance = np.zeros_like(prices), np.zeros_like(prices)
    for round_ in range(1, _ROUNDS + 1):
        value, slope = problem.value(prices)
        best = max(best, value)
        momentum = _MOMENTUM * momentum + (1 - _MOMENTUM) * slope
        variance = _VARIANCE_MOMENTUM * variance + (1 - _VARIANCE_MOMENTUM) * slope**2
        steady = np.sqrt(variance / (1 - _VARIANCE_MOMENTUM**round_)) + _TINY
        step = _FIRST_STEP * (_LAST_STEP / _FIRST_STEP) ** (round_ / _ROUNDS)
        prices = np.maximum(0.0, prices + step * momentum / (1 - _MOMENTUM**round_) / steady)
    return best


def _problem(
    pods: Mapping[PodNeeds, int], offers: Mapping[Offer, int], costs: Array
) -> _Problem | None:
    """Scaled so that prices near 1 are those at which one resource alone pays for a machine; None
    without pods. Pods that no machine holds cannot be in any packing, and are left out.
    """
    kinds = list(offers)
    asked = sorted({(needs.labels, needs.tolerations) for needs in pods}, key=repr)
    doors = [PodNeeds((), labels, tolerations) for labels, tolerations in asked]
    patterns = [tuple(door.accepts(offer) for door in doors) for offer in kinds]
    groups = {pattern: number for number, pattern in enumerate(dict.fromkeys(patterns))}
    group = np.array([groups[pattern] for pattern in patterns], dtype=np.int64)
    fits = {needs: _usable(needs, kinds, group, len(groups)) for needs in pods}
    wanted = {needs: usable for needs, usable in fits.items() if usable.any() and pods[needs]}
    if not wanted:
        return None
    names = sorted({name for needs in wanted for name, _ in needs.requests})
    rooms = np.array([[dict(o.room).get(name, 0) for name in names] for o in kinds], dtype=float)
    sizes = np.array([[dict(n.requests).get(name, 0) for name in names] for n in wanted], float)
    paid = costs > 0
    rate = np.full(len(names), np.inf)
    for at, _ in enumerate(names):
        has = paid & (rooms[:, at] > 0)
        rate[at] = (costs[has] / rooms[has, at]).min() if has.any() else 1.0
    return _Problem(
        sizes=sizes * rate,
        counts=np.array([pods[needs] for needs in wanted], dtype=float),
        usable=np.array(list(wanted.values())),
        rooms=rooms * rate,
        group=group,
        costs=costs,
        supply=np.array([offers[offer] for offer in kinds], dtype=float),
    )


def _usable(
    needs: PodNeeds, kinds: list[Offer], group: NDArray[np.int64], groups: int
) -> NDArray[np.bool_]:
    """In which groups some machine holds the pod."""
    found = np.zeros(groups, dtype=np.bool_)
    found[group[[needs.fits(offer) for offer in kinds]]] = True
    return found
