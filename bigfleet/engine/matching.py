"""Which flavours a need accepts: Kubernetes node-selector semantics over label columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from bigfleet.engine.columns import FlavourColumns
from bigfleet.engine.snapshot import Flags
from bigfleet.model.need import Operator, Profile, Requirement, Spread


def admits(requirement: Requirement, value: str | None) -> bool:
    """Whether a machine whose label `requirement.key` is `value` (None: absent) qualifies.

    As in Kubernetes, NotIn accepts an absent key. Same accepts any value, but needs one: which
    value it is to be is a question about all machines of the need together.
    """
    if requirement.operator is Operator.IN:
        return value is not None and value in requirement.values
    if requirement.operator is Operator.NOT_IN:
        return value is None or value not in requirement.values
    if requirement.operator is Operator.DOES_NOT_EXIST:
        return value is None
    return value is not None


def hard_spread(profile: Profile) -> tuple[Spread, ...]:
    """The spread terms that bind: hard ones, and none where Same wants a single domain."""
    if profile.same_key is not None:
        return ()
    return tuple(term for term in profile.spread if term.hard)


def placement_requirements(profile: Profile) -> tuple[Requirement, ...]:
    """All conditions on one machine. A machine outside the domains of a hard spread term takes no
    pod of that term, so the term's key must be there.
    """
    spread_keys = (Requirement(t.topology_key, Operator.EXISTS) for t in hard_spread(profile))
    return (*profile.requirements, *spread_keys)


def accepts(requirements: Iterable[Requirement], labels: Mapping[str, str]) -> bool:
    """Whether one machine's labels meet all `requirements`."""
    return all(admits(r, labels.get(r.key)) for r in requirements)


class Matcher:
    """Remembers, for one decision, which flavours meet a set of requirements."""

    def __init__(self, columns: FlavourColumns) -> None:
        self._columns = columns
        self._by_requirement: dict[Requirement, Flags] = {}
        self._by_set: dict[tuple[Requirement, ...], Flags] = {}

    def flavours(self, requirements: tuple[Requirement, ...]) -> Flags:
        """One flag per flavour; do not write to it."""
        if requirements not in self._by_set:
            accepted = np.ones(len(self._columns), np.bool_)
            for requirement in requirements:
                accepted &= self._meeting(requirement)
            self._by_set[requirements] = accepted
        return self._by_set[requirements]

    def _meeting(self, requirement: Requirement) -> Flags:
        if requirement not in self._by_requirement:
            codes, values = self._columns.label(requirement.key)
            # The absent key comes last, where the code NONE (-1) finds it.
            verdicts = [admits(requirement, value) for value in (*values, None)]
            self._by_requirement[requirement] = np.array(verdicts, np.bool_)[codes]
        return self._by_requirement[requirement]
