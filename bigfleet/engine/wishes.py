"""A need worked out over flavours: what it wants, and what each kind of machine holds of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bigfleet.engine.columns import FlavourColumns
from bigfleet.engine.cost import CostBook
from bigfleet.engine.holding import Holdings, wanted
from bigfleet.engine.matching import Matcher, hard_spread, placement_requirements
from bigfleet.engine.snapshot import Demand, Flags, Floats, Ints, Longs
from bigfleet.model.need import Need, Requirement, Spread


@dataclass(frozen=True)
class Wish:
    """Need number `index` of the demand over F flavours and R `resources`.

    `want` [R] is all it asks for. `units` [F, R], `costs` [F] and `reluctance` [F] say what a
    machine holds of it and what it costs it; `matching` [F] meets its requirements, `usable` [F]
    also holds some of it. `same_key` is the label whose value its machines must share, `terms` are
    the hard spread terms.
    """

    index: int
    need: Need
    cluster: int
    resources: Sequence[str]
    want: Longs
    units: Longs
    matching: Flags
    usable: Flags
    costs: Floats
    reluctance: Ints
    terms: Sequence[Spread]

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

    def of(self, index: int) -> Wish | None:
        """The need worked out; None for one that asks for nothing."""
        need = self._demand.needs[index]
        resources, want = wanted(need)
        if not resources:
            return None
        holding = self._holdings.of(need, resources)
        matching = self._matcher.flavours(placement_requirements(need.profile))
        return Wish(
            index=index,
            need=need,
            cluster=int(self._demand.cluster[index]),
            resources=resources,
            want=want,
            units=holding.units,
            matching=matching,
            usable=holding.usable & matching,
            costs=self._costs.costs(need),
            reluctance=self._costs.reluctance(need),
            terms=hard_spread(need.profile),
        )

    def meeting(self, requirements: tuple[Requirement, ...]) -> Flags:
        """Which flavours meet `requirements`; do not write to it."""
        return self._matcher.flavours(requirements)
