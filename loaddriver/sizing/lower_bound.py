"""A lower bound on the cost of any set of machines that holds given pods, by linear duality.

The linear relaxation, in which pods and machines are divisible, costs no more than any real
packing. Any non-negative resource prices, per group of machines that the same pods accept, are a
feasible point of its dual: the value of the pods, each where it is lowest, minus the value of the
machines beyond their cost. So the result is a bound without trusting a solver; a better search only
brings it closer to the optimum.

Racks, spread and anti-affinity are ignored, which can only lower the bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loaddriver.sizing.fit import Offering, PodRequirements

Array = NDArray[np.float64]
_ROUNDS = 1500
_FIRST_STEP, _LAST_STEP = 0.1, 0.001
# The usual parameters of Adam.
_MOMENTUM, _VARIANCE_MOMENTUM, _TINY = 0.9, 0.999, 1e-12


def least_dollars_per_hour(
    pods: Mapping[PodRequirements, int], offerings: Mapping[Offering, int]
) -> float:
    """A lower bound on the hourly cost of machines from `offerings` that hold `pods`."""
    costs = np.array([offering.dollars_per_hour for offering in offerings], dtype=np.float64)
    return _bound(pods, offerings, costs)


def least_machines(pods: Mapping[PodRequirements, int], offerings: Mapping[Offering, int]) -> int:
    """A lower bound on the number of machines from `offerings` that hold `pods`."""
    return math.ceil(_bound(pods, offerings, np.ones(len(offerings))) - 1e-6)


@dataclass(frozen=True)
class _Problem:
    """Arrays over pod requirements (g), offerings (m), groups of offerings (k) and resources (r).

    `sizes` (g, r), `counts` (g), `usable` (g, k), `capacities` (m, r), `group` (m), `costs` (m),
    `supply` (m).
    """

    sizes: Array
    counts: Array
    usable: NDArray[np.bool_]
    capacities: Array
    group: NDArray[np.int64]
    costs: Array
    supply: Array

    def value(self, prices: Array) -> tuple[float, Array]:
        """The bound at `prices` (k, r), and its gradient."""
        worth = np.where(self.usable, self.sizes @ prices.T, np.inf)
        where = worth.argmin(axis=1)
        own = np.arange(len(where))
        over = np.einsum("mr,mr->m", self.capacities, prices[self.group]) - self.costs
        gains = over > 0
        value = self.counts @ worth[own, where] - self.supply[gains] @ over[gains]
        slope = np.zeros_like(prices)
        np.add.at(slope, where, self.sizes * self.counts[:, None])
        np.add.at(slope, self.group[gains], -self.capacities[gains] * self.supply[gains, None])
        return float(value), slope


def _bound(
    pods: Mapping[PodRequirements, int], offerings: Mapping[Offering, int], costs: Array
) -> float:
    problem = _problem(pods, offerings, costs)
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
        scale = np.sqrt(variance / (1 - _VARIANCE_MOMENTUM**round_)) + _TINY
        step = _FIRST_STEP * (_LAST_STEP / _FIRST_STEP) ** (round_ / _ROUNDS)
        prices = np.maximum(0.0, prices + step * momentum / (1 - _MOMENTUM**round_) / scale)
    return best


def _problem(
    pods: Mapping[PodRequirements, int], offerings: Mapping[Offering, int], costs: Array
) -> _Problem | None:
    """Build the problem; None without pods. Pods that fit no machine are left out.

    Scaled so that at a price of 1 one resource alone pays for a machine.
    """
    offering_list = list(offerings)
    distinct = sorted(
        {(requirements.labels, requirements.tolerations) for requirements in pods}, key=repr
    )
    selectors = [PodRequirements((), labels, tolerations) for labels, tolerations in distinct]
    patterns = [
        tuple(selector.accepts(offering) for selector in selectors) for offering in offering_list
    ]
    groups = {pattern: number for number, pattern in enumerate(dict.fromkeys(patterns))}
    group = np.array([groups[pattern] for pattern in patterns], dtype=np.int64)
    fits = {
        requirements: _usable(requirements, offering_list, group, len(groups))
        for requirements in pods
    }
    schedulable = {
        requirements: usable
        for requirements, usable in fits.items()
        if usable.any() and pods[requirements]
    }
    if not schedulable:
        return None
    names = sorted({name for requirements in schedulable for name, _ in requirements.requests})
    capacities = np.array(
        [[dict(o.available).get(name, 0) for name in names] for o in offering_list], dtype=float
    )
    sizes = np.array(
        [[dict(n.requests).get(name, 0) for name in names] for n in schedulable], float
    )
    paid = costs > 0
    rate = np.full(len(names), np.inf)
    for at, _ in enumerate(names):
        has = paid & (capacities[:, at] > 0)
        rate[at] = (costs[has] / capacities[has, at]).min() if has.any() else 1.0
    return _Problem(
        sizes=sizes * rate,
        counts=np.array([pods[requirements] for requirements in schedulable], dtype=float),
        usable=np.array(list(schedulable.values())),
        capacities=capacities * rate,
        group=group,
        costs=costs,
        supply=np.array([offerings[offering] for offering in offering_list], dtype=float),
    )


def _usable(
    requirements: PodRequirements,
    offering_list: list[Offering],
    group: NDArray[np.int64],
    groups: int,
) -> NDArray[np.bool_]:
    """The groups in which the pod fits some machine."""
    found = np.zeros(groups, dtype=np.bool_)
    found[group[[requirements.fits(offering) for offering in offering_list]]] = True
    return found
