"""Demand as columns: one equivalence class for each pod size of each need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bigfleet.engine.columns import FlavourColumns
from bigfleet.engine.fit.capacity import Capacities
from bigfleet.engine.fit.cost import costs_of, tiers
from bigfleet.engine.fit.matching import hard_spread
from bigfleet.engine.kernels.folding import fit_some, number_rows
from bigfleet.engine.kernels.scoring import NO_LIMIT, ClassColumns
from bigfleet.engine.kernels.sorting import order_of
from bigfleet.engine.need_columns import NeedColumns
from bigfleet.engine.snapshot import Bytes, Flags, Floats, Ints, Longs, Rows
from bigfleet.model.need import Profile, Spread

_SHARE_STEPS = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class FlavourFit:
    """How F flavours fit the needs with one profile and the same requested resources."""

    #: row of `PodClasses.accepted`
    number: int
    profile: Profile
    #: [R] bool as bytes, the resources that the need's pods request
    asked: bytes
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


# Not an enum: Python 3.11 takes long to look up the members of one, and every loop over needs does.
class NeedType:
    """How a need is placed, as a number in a column.

    PLAIN pods go wherever there is room. CONSTRAINED pods have hard spread or anti-affinity. A GANG
    shares one domain. ADDITIONAL pods go only to machines acquired for them.
    """

    PLAIN, CONSTRAINED, GANG, ADDITIONAL = range(4)


class PodClasses:
    """C equivalence classes of pods, of N needs in the demand's order and each need's sizes by
    descending dominant share.
    """

    def __init__(
        self,
        needs: NeedColumns,
        cluster: Ints,
        capacities: Capacities,
        present: Rows,
    ) -> None:
        """`cluster` [N] is each need's; `present` are the flavours that some machine has."""
        self._flavours = columns = capacities.columns
        self._matcher, self._capacities, self._present = capacities.matcher, capacities, present
        self._present_key = present.tobytes()
        #: [N] int64
        self.priority: Longs = needs.priority
        #: [N + 1] int64, delimits each need's classes
        self.start: Longs = needs.start
        #: [C] int32, index of the need
        self.need: Ints = needs.need
        sizes, unknown = requests_of(needs.resources, needs.amounts, columns)
        largest = np.max(columns.allocatable[present], axis=0, initial=0)
        #: [R] float64, the most of each resource that a machine of the fleet has
        self.largest: Floats = np.maximum(largest, 1).astype(np.float64)
        share = np.zeros(len(sizes))
        # Not `max(axis=1)`: over so few columns it takes several times as long.
        for asked, most in zip(sizes.T, self.largest.tolist(), strict=True):
            np.maximum(share, asked / most, out=share)
        #: [C] intp, position of the class in the order of the needs' sizes
        self.original: Rows = _by_share(share, needs)
        #: [C, R] int64, requests of one pod
        self.sizes: Longs = sizes[self.original]
        #: [C] int64, number of pods
        self.count: Longs = needs.pods[self.original]
        #: [C] float64, the largest share of any resource of the fleet's largest machine
        self.dominant_share: Floats = share[self.original]
        #: [C] int64, how many pods of the class's need one machine takes
        self.most: Longs = np.where(needs.apart[self.need], 1, NO_LIMIT)
        #: [C] bool, no machine that the need accepts can hold the pod; never packed
        self.impossible: Flags = self._impossible(unknown[self.original], needs, cluster)
        fits, fit_of = self._flavour_fits(needs)
        self._fits, self._fit_of = fits, fit_of
        #: [N] uint8, NeedType
        self.need_type: Bytes = _need_types(needs, fits, fit_of)
        #: [C] int32, row of `accepted` and `scarce`
        self.flavour_fit: Ints = fit_of[self.need]
        #: [A], by number of a flavour fit: what it depends on but for the flavours
        self.fit_keys = key = tuple((fit.profile.fingerprint, fit.asked) for fit in fits)
        #: [A, F] bool, the need accepts the flavour
        self.accepted: Flags = columns.remember_last(
            ("accepted", key), lambda: _stacked([fit.accepted for fit in fits], len(columns))
        )
        #: [A, F] bool, the flavour has a scarce resource that the need does not request
        self.scarce: Flags = columns.remember_last(
            ("scarce", key), lambda: _stacked([fit.tier % 2 == 1 for fit in fits], len(columns))
        )

    @cached_property
    def columns(self) -> ClassColumns:
        """The columns that kernels read."""
        return ClassColumns(
            self.need, self.sizes, self.most, self.flavour_fit, self.accepted, self.scarce
        )

    @cached_property
    def choice(self) -> Longs:
        """[A] int64, how many of the flavours that machines have the need accepts."""
        return self._flavours.remember_last(
            ("choice", (self._present_key, self.fit_keys)),
            lambda: self.accepted[:, self._present].sum(axis=1),
        )

    @cached_property
    def share_steps(self) -> Floats:
        """[C] float64, `dominant_share` in whole steps: sums of them are exact."""
        return np.rint(self.dominant_share * _SHARE_STEPS)

    def fit(self, need: int) -> FlavourFit:
        """How the flavours fit a need."""
        return self._fits[int(self._fit_of[need])]

    def of(self, need: int) -> slice:
        """The classes of a need."""
        return slice(int(self.start[need]), int(self.start[need + 1]))

    def kinds(self, number: int) -> Ints:
        """For each flavour [F] a number that it shares with those that have the same capacity in
        matrix `number` and that the same needs accept.
        """

        def compute() -> Ints:
            kind = self._capacities.shapes(number).of_flavour.astype(np.int64)
            for flags in (self.accepted, self.scarce):
                for bits in np.packbits(flags, axis=0):
                    _, kind = np.unique(kind * 256 + bits, return_inverse=True)
            return kind.astype(np.int32)

        key = self._capacities.key(number), self.fit_keys
        return self._flavours.remember_last((f"kinds {number}", key), compute)

    def _flavour_fits(self, needs: NeedColumns) -> tuple[list[FlavourFit], Ints]:
        """All distinct fits, and the number of each need's."""
        # A GPU requested by an impossible size must not make GPU machines candidates for the rest.
        asked = np.zeros((len(needs), self.sizes.shape[1]), np.bool_)
        classes, resources = np.nonzero(self.sizes * ~self.impossible[:, None])
        asked[self.need[classes], resources] = True
        rows: Longs = np.column_stack((needs.profile, _words(asked)))
        fit_of, first = number_rows(rows)
        # In an order that does not depend on which need comes first: much is remembered of fits.
        order = np.lexsort(rows[first].T)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        first, fit_of = first[order], place[fit_of]
        fits = [
            self._flavour_fit(needs.profiles[int(needs.profile[at])], asked[at], number)
            for number, at in enumerate(first.tolist())
        ]
        return fits, fit_of.astype(np.int32)

    def _flavour_fit(self, profile: Profile, asked: Flags, number: int) -> FlavourFit:
        columns, key = self._flavours, asked.tobytes()
        costs = costs_of(columns, profile.interruption_bucket)
        return FlavourFit(
            number=number,
            profile=profile,
            asked=key,
            accepted=self._matcher.accepting(profile),
            costs=costs,
            tier=columns.remember(
                ("tier", profile.interruption_bucket, key),
                lambda: tiers(costs, columns.has_other_scarce(asked)),
            ),
            terms=hard_spread(profile),
            preferred=tuple(term for term in profile.spread if not term.hard),
        )

    def _impossible(self, unknown: Flags, needs: NeedColumns, cluster: Ints) -> Flags:
        impossible = unknown | needs.contradictory[self.need]
        numbers = self._capacities.numbers(cluster)
        profiles = len(needs.profiles)
        keys = (numbers.astype(np.int64) * profiles + needs.profile)[self.need]
        # Classes with equal capacity matrix and profile are tested together.
        groups = [*_equal(keys)]
        kinds = [divmod(int(keys[its[0]]), profiles) for its in groups]
        known = (
            (self._capacities.key(number), needs.profiles[at].fingerprint) for number, at in kinds
        )
        shapes = self._flavours.remember_last(
            ("shapes", (self._present_key, tuple(known))),
            lambda: [self._shapes(number, needs.profiles[at]) for number, at in kinds],
        )
        for its, capacity in zip(groups, shapes, strict=True):
            impossible[its] |= ~fit_some(self.sizes, its, capacity)
        return impossible

    def _shapes(self, number: int, profile: Profile) -> Longs:
        """The distinct capacities of the flavours that machines have and the profile accepts."""
        shapes, accepted = self._capacities.shapes(number), self._matcher.accepting(profile)
        used = np.zeros(len(shapes.rows), np.bool_)
        used[shapes.of_flavour[self._present[accepted[self._present]]]] = True
        return shapes.rows[used]


def requests_of(
    resources: Sequence[str], amounts: Longs, columns: FlavourColumns
) -> tuple[Longs, Flags]:
    """`amounts` [S, Q] of these `resources` by the fleet's resources [S, R], and which rows [S]
    request a resource that no flavour has.
    """
    sizes = np.zeros((len(amounts), len(columns.resources)), np.int64)
    unknown = np.zeros(len(amounts), np.bool_)
    for at, name in enumerate(resources):
        if name in columns.column_of:
            sizes[:, columns.column_of[name]] = amounts[:, at]
        else:
            unknown |= amounts[:, at] > 0
    return sizes, unknown


def _need_types(needs: NeedColumns, fits: Sequence[FlavourFit], fit_of: Ints) -> Bytes:
    constrained = np.array([fit.is_constrained for fit in fits], np.bool_)[fit_of]
    types = np.where(constrained, NeedType.CONSTRAINED, NeedType.PLAIN).astype(np.uint8)
    types[needs.gang] = NeedType.GANG
    types[needs.additional] = NeedType.ADDITIONAL
    return types


def _by_share(share: Floats, needs: NeedColumns) -> Rows:
    """The classes [C] by need and descending `share` [C]."""
    order = np.arange(len(share))
    its = np.flatnonzero(np.diff(needs.start)[needs.need] > 1)
    order[its] = its[np.lexsort((-share[its], needs.need[its]))]
    return order


def _words(flags: Flags) -> Longs:
    """The rows of `flags` [N, R] as numbers, of 64 flags each."""
    packed = np.packbits(flags, axis=1)
    padded = np.zeros((len(packed), -(-packed.shape[1] // 8) * 8), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view(np.int64)


def _stacked(rows: Sequence[Flags], columns: int) -> Flags:
    return np.stack(rows) if rows else np.zeros((0, columns), np.bool_)


def _equal(keys: Longs) -> Iterator[Rows]:
    """The positions of each distinct key."""
    order = order_of(keys)
    borders = np.flatnonzero(np.diff(keys[order])) + 1
    yield from np.split(order, borders) if len(keys) else ()
