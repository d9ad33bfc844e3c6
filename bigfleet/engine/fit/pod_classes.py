"""Demand as columns: one equivalence class for each pod size of each need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bigfleet.engine.columns import FlavourColumns
from bigfleet.engine.fit.capacity import Capacities
from bigfleet.engine.fit.cost import Costs, tiers
from bigfleet.engine.fit.matching import Matcher, hard_spread
from bigfleet.engine.kernels.packing import NO_LIMIT, ClassColumns
from bigfleet.engine.snapshot import Bytes, Demand, Flags, Floats, Ints, Longs, Rows
from bigfleet.model.group import Additional
from bigfleet.model.need import HOSTNAME_LABEL, Need, Profile, Spread


@dataclass(frozen=True, slots=True, eq=False)
class FlavourFit:
    """How F flavours fit the needs with one profile and the same requested resources."""

    #: row of `PodClasses.accepted`
    number: int
    profile: Profile
    #: [F] bool, the flavour meets the profile's per-machine conditions
    accepted: Flags
    #: [F] float64, effective dollars an hour
    costs: Floats
    #: [F] int32, candidate tier, the lowest first
    tier: Ints
    #: hard spread terms
    terms: tuple[Spread, ...]
    #: soft spread terms
    preferred: tuple[Spread, ...]

    @property
    def is_constrained(self) -> bool:
        """Whether the placement of one pod depends on that of the need's other pods."""
        return bool(self.terms or self.profile.anti_affinity)


class _Accepting(NamedTuple):
    """The number of a profile, and the flavours [F] that it accepts."""

    number: int
    accepted: Flags


class NeedType(IntEnum):
    """How a need is placed.

    PLAIN pods go wherever there is room. CONSTRAINED pods have hard spread or anti-affinity. A GANG
    shares one domain. ADDITIONAL pods go only to machines acquired for them.
    """

    PLAIN = 0
    CONSTRAINED = 1
    GANG = 2
    ADDITIONAL = 3


def need_type_of(need: Need, flavour_fit: FlavourFit) -> NeedType:
    """How `need` is placed."""
    if isinstance(need.group, Additional):
        return NeedType.ADDITIONAL
    if flavour_fit.profile.same_key is not None:
        return NeedType.GANG
    return NeedType.CONSTRAINED if flavour_fit.is_constrained else NeedType.PLAIN


class PodClasses:
    """C equivalence classes of pods, of N needs in the demand's order and each need's sizes by
    descending dominant share.
    """

    def __init__(
        self,
        demand: Demand,
        columns: FlavourColumns,
        matcher: Matcher,
        capacities: Capacities,
        present: Rows,
    ) -> None:
        """`present` are the flavours that some machine of the fleet has."""
        self._flavours, self._matcher, self._costs = columns, matcher, Costs(columns)
        self._capacities, self._present = capacities, present
        self._profiles: dict[str, _Accepting] = {}
        self._largest = np.max(columns.allocatable[present], axis=0, initial=0)
        needs = demand.needs
        #: [N + 1] int64, delimits each need's classes
        self.start: Longs = np.zeros(len(needs) + 1, np.int64)
        np.cumsum([len(need.sizes) for need in needs], out=self.start[1:])
        #: [C] int32, index of the need
        self.need: Ints = np.repeat(np.arange(len(needs), dtype=np.int32), np.diff(self.start))
        #: [C, R] int64, requests of one pod
        self.sizes, unknown = self._amounts(needs)
        #: [C] int64, number of pods
        self.count: Longs = np.array([size.pods for need in needs for size in need.sizes], np.int64)
        apart = [HOSTNAME_LABEL in need.profile.anti_affinity for need in needs]
        #: [C] int64, how many pods of the class's need one machine takes
        self.most: Longs = np.where(np.array(apart, np.bool_)[self.need], 1, NO_LIMIT)
        #: [C] float64, the largest share of any resource of the fleet's largest machine
        self.dominant_share = self._dominant_shares()
        self._order_by_share(unknown, demand)
        #: [N]
        self.of_need: Sequence[FlavourFit] = self._flavour_fits(needs)
        #: [N] uint8, NeedType
        self.need_type: Bytes = np.array([*map(need_type_of, needs, self.of_need)], np.uint8)
        #: [C] int32, row of `accepted` and `scarce`
        self.flavour_fit: Ints = np.array([each.number for each in self.of_need], np.int32)[
            self.need
        ]
        known = {each.number: each for each in self.of_need}
        #: [A, F] bool, the need accepts the flavour
        self.accepted: Flags = np.zeros((len(known), len(columns)), np.bool_)
        #: [A, F] bool, the flavour has a scarce resource that the need does not request
        self.scarce: Flags = np.zeros((len(known), len(columns)), np.bool_)
        for each in known.values():
            self.accepted[each.number] = each.accepted
            self.scarce[each.number] = each.tier % 2 == 1

    @cached_property
    def columns(self) -> ClassColumns:
        """The columns that kernels read."""
        return ClassColumns(
            self.need, self.sizes, self.most, self.flavour_fit, self.accepted, self.scarce
        )

    def of(self, need: int) -> slice:
        """The classes of a need."""
        return slice(int(self.start[need]), int(self.start[need + 1]))

    def _order_by_share(self, unknown: Flags, demand: Demand) -> None:
        order = np.lexsort((np.arange(len(self.need)), -self.dominant_share, self.need))
        #: [C] intp, position of the class in the order of the needs' sizes
        self.original: Rows = order
        self.sizes, self.count, self.dominant_share = (
            self.sizes[order],
            self.count[order],
            self.dominant_share[order],
        )
        #: [C] bool, no machine that the need accepts can hold the pod; never packed
        self.impossible = self._impossible(unknown[order], demand)

    def _flavour_fits(self, needs: Sequence[Need]) -> list[FlavourFit]:
        # A GPU requested by an impossible size must not make GPU machines candidates for the rest.
        asked = np.zeros((len(needs), self.sizes.shape[1]), np.bool_)
        classes, resources = np.nonzero(self.sizes * ~self.impossible[:, None])
        asked[self.need[classes], resources] = True
        known: dict[tuple[str, bytes], FlavourFit] = {}
        found = []
        for need, its in zip(needs, asked, strict=True):
            key = need.profile.fingerprint, its.tobytes()
            if key not in known:
                known[key] = self._flavour_fit(need.profile, its, len(known))
            found.append(known[key])
        return found

    def _accepting(self, profile: Profile) -> _Accepting:
        if profile.fingerprint not in self._profiles:
            accepted = self._matcher.accepting(profile)
            self._profiles[profile.fingerprint] = _Accepting(len(self._profiles), accepted)
        return self._profiles[profile.fingerprint]

    def _flavour_fit(self, profile: Profile, asked: Flags, number: int) -> FlavourFit:
        costs = self._costs.of(profile.interruption_bucket)
        return FlavourFit(
            number=number,
            profile=profile,
            accepted=self._accepting(profile).accepted,
            costs=costs,
            tier=tiers(costs, self._flavours.has_other_scarce(asked)),
            terms=hard_spread(profile),
            preferred=tuple(term for term in profile.spread if not term.hard),
        )

    def _amounts(self, needs: Sequence[Need]) -> tuple[Longs, Flags]:
        """The requests of each class [C, R], and which classes [C] request a resource that no
        flavour has.
        """
        column_of, rows, places, amounts = self._flavours.column_of, [], [], []
        unknown = np.zeros(len(self.need), np.bool_)
        at = 0
        for need in needs:
            for size in need.sizes:
                for name, amount in size.amounts:
                    if name in column_of:
                        rows.append(at)
                        places.append(column_of[name])
                        amounts.append(amount)
                    else:
                        unknown[at] = True
                at += 1
        sizes = np.zeros((len(self.need), len(column_of)), np.int64)
        sizes[rows, places] = amounts
        return sizes, unknown

    def _dominant_shares(self) -> Floats:
        largest = np.maximum(self._largest, 1).astype(np.float64)
        shares: Floats = (self.sizes / largest).max(axis=1, initial=0.0)
        return shares

    def _impossible(self, unknown: Flags, demand: Demand) -> Flags:
        numbers = [self._capacities.number(cluster) for cluster in demand.cluster.tolist()]
        number_of = np.array(numbers, np.int64)[self.need]
        impossible = unknown.copy()
        impossible |= np.array([*map(_is_contradictory, demand.needs)], np.bool_)[self.need]
        profiles = [self._accepting(need.profile) for need in demand.needs]
        profile = np.array([each.number for each in profiles], np.int64)[self.need]
        # Classes with equal capacity matrix and profile are tested together.
        for classes in _equal(number_of * len(self._profiles) + profile):
            first = classes[0]
            accepted = profiles[int(self.need[first])].accepted
            held = self._held(int(number_of[first]), accepted, classes)
            impossible[classes[~held]] = True
        return impossible

    def _held(self, number: int, accepted: Flags, classes: Rows) -> Flags:
        """Which of `classes` fit on an empty machine of some `accepted` flavour."""
        shapes = self._capacities.shapes(number)
        flavours = self._present[accepted[self._present]]
        held = np.zeros(len(classes), np.bool_)
        for shape in shapes.rows[np.unique(shapes.of_flavour[flavours])]:
            held |= np.logical_and.reduce(self.sizes[classes] <= shape, axis=1)
        return held


def _equal(keys: Longs) -> Iterator[Rows]:
    """The positions of each distinct key."""
    order = np.argsort(keys, kind="stable")
    borders = np.flatnonzero(np.diff(keys[order])) + 1
    yield from np.split(order, borders) if len(keys) else ()


def _is_contradictory(need: Need) -> bool:
    """Whether all pods must share a domain that may not hold them all, whatever machines exist."""
    profile = need.profile
    if profile.same_key is None:
        return False
    # A gang that must share one host and was not folded fits on no machine.
    if profile.same_key == HOSTNAME_LABEL:
        return True
    # Domains are nested: two pods of one rack are in one zone as well. Only hosts are finer.
    repels = any(key != HOSTNAME_LABEL for key in profile.anti_affinity)
    return repels and sum(size.pods for size in need.sizes) > 1
