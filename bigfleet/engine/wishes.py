"""A need worked out over flavours: what it wants, and what each kind of machine holds of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bigfleet.engine.columns import FlavourColumns
from bigfleet.engine.cost import CostBook
from bigfleet.engine.holding import Holdings, Size, unit_sizes, wanted
from bigfleet.engine.matching import Matcher, hard_spread, placement_requirements
from bigfleet.engine.snapshot import Demand, Flags, Floats, Ints, Longs
from bigfleet.model.need import Need, Requirement, Spread


@dataclass(frozen=True, slots=True, eq=False)
class Likeness:
    """What needs have in common that differ only in cluster, group and how much they want.

    `units` [F, R], `costs` [F] and `reluctance` [F] say what a machine of each of F flavours holds
    of the R `resources` and what it costs; `matching` [F] meets the requirements, `usable` [F] also
    holds some of it. `terms` are the hard spread terms.
    """

    resources: Sequence[str]
    units: Longs
    matching: Flags
    usable: Flags
    costs: Floats
    reluctance: Ints
    terms: Sequence[Spread]


@dataclass(frozen=True, slots=True, eq=False)
class Wish:
    """Need number `index` of the demand; `want` [R] is all it asks for of its resources."""

    index: int
    need: Need
    cluster: int
    want: Longs
    like: Likeness

    @property
    def resources(self) -> Sequence[str]:
        """What it asks for, in the order of `want`."""
        return self.like.resources

    @property
    def units(self) -> Longs:
        """What one machine of each flavour holds of it [F, R]."""
        return self.like.units

    @property
    def matching(self) -> Flags:
        """Which flavours meet its requirements."""
        return self.like.matching

    @property
    def usable(self) -> Flags:
        """Which flavours also hold some of it."""
        return self.like.usable

    @property
    def costs(self) -> Floats:
        """What a machine of each flavour costs it."""
        return self.like.costs

    @property
    def reluctance(self) -> Ints:
        """How late each flavour comes into question."""
        return self.like.reluctance

    @property
    def terms(self) -> Sequence[Spread]:
        """Its hard spread terms."""
        return self.like.terms

    @property
    def same_key(self) -> str | None:
        """The label whose value all machines of the need must share."""
        return self.need.profile.same_key


class Wishes:
    """Works out needs, remembering what many have in common; one decision long."""

    def __init__(self, demand: Demand, columns: FlavourColumns) -> None:
        self._demand = demand
        self._matcher = Matcher(columns)
        self._holdings = Holdings(columns)
        self._costs = CostBook(columns)
        self._known: dict[tuple[str, Size, tuple[str, ...]], Likeness] = {}

    def of(self, index: int) -> Wish | None:
        """The need worked out; None for one that asks for nothing."""
        need = self._demand.needs[index]
        resources, amounts = wanted(need)
        if not resources:
            return None
        want = np.array(amounts, np.int64)
        return Wish(index, need, int(self._demand.cluster[index]), want, self.like(need, resources))

    def like(self, need: Need, resources: tuple[str, ...]) -> Likeness:
        """What `need`, which asks for `resources`, has in common with others: the same object."""
        key = need.profile.fingerprint, unit_sizes(need), resources
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._work_out(need, resources)
        return known

    def meeting(self, requirements: tuple[Requirement, ...]) -> Flags:
        """Which flavours meet `requirements`; do not write to it."""
        return self._matcher.flavours(requirements)

    def _work_out(self, need: Need, resources: tuple[str, ...]) -> Likeness:
        holding = self._holdings.of(need, resources)
        matching = self._matcher.flavours(placement_requirements(need.profile))
        return Likeness(
            resources=resources,
            units=holding.units,
            matching=matching,
            usable=holding.usable & matching,
            costs=self._costs.costs(need),
            reluctance=self._costs.reluctance(need),
            terms=hard_spread(need.profile),
        )
