"""Matching of profiles to flavours: node affinity and tolerations over label columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from bigfleet.engine.columns import FlavourColumns
from bigfleet.engine.snapshot import Flags, Flavour
from bigfleet.model.integers import is_integer
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.need import Operator, Profile, Requirement, Spread, Taint, Term, Toleration

# PreferNoSchedule and unknown effects do not filter Nodes.
_REPELLING = ("NoSchedule", "NoExecute")
# Every machine has a hostname, which no pod can name in advance.
_ANY_HOSTNAME = "\0"


def matches(requirement: Requirement, value: str | None) -> bool:
    """Whether a machine whose label `requirement.key` is `value` (None: absent) qualifies.

    As in Kubernetes, NotIn accepts an absent key. Same accepts any value, but requires one: that
    all machines of the need have the same one is checked elsewhere.
    """
    operator, values = requirement.operator, requirement.values
    if operator is Operator.IN:
        return value is not None and value in values
    if operator is Operator.NOT_IN:
        return value is None or value not in values
    if operator is Operator.DOES_NOT_EXIST:
        return value is None
    if operator in (Operator.GREATER_THAN, Operator.LESS_THAN):
        if value is None or not is_integer(value):
            return False
        greater = int(value) > int(values[0])
        return greater if operator is Operator.GREATER_THAN else int(value) < int(values[0])
    return value is not None


def hard_spread(profile: Profile) -> tuple[Spread, ...]:
    """The hard spread terms; none if the profile requires a single domain (Same)."""
    if profile.same_key is not None:
        return ()
    return tuple(term for term in profile.spread if term.hard)


def placement_requirements(profile: Profile) -> Term:
    """The requirements on each machine: the profile's, and the keys of its topology terms, because
    kube-scheduler filters Nodes without them.
    """
    keys = (*(term.topology_key for term in hard_spread(profile)), *profile.anti_affinity)
    return (*profile.requirements, *(Requirement(key, Operator.EXISTS) for key in keys))


def tolerates(tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> bool:
    """Whether a pod with these tolerations tolerates all of `taints`."""
    repelling = (taint for taint in taints if taint.effect in _REPELLING)
    return all(any(each.tolerates(taint) for each in tolerations) for taint in repelling)


def accepts(requirements: Iterable[Requirement], labels: Mapping[str, str]) -> bool:
    """Whether a machine's labels meet all `requirements`."""
    return all(
        matches(r, _ANY_HOSTNAME if r.key == HOSTNAME_LABEL else labels.get(r.key))
        for r in requirements
    )


def accepts_machine(profile: Profile, flavour: Flavour) -> bool:
    """Whether a machine of `flavour` meets all per-machine conditions of `profile`."""
    labels, alternatives = flavour.labels, profile.alternatives
    return (
        accepts(placement_requirements(profile), labels)
        and (not alternatives or any(accepts(term, labels) for term in alternatives))
        and tolerates(profile.tolerations, flavour.taints)
    )


class Matcher:
    """Matches requirements and tolerations to flavours; verdicts are remembered by the columns."""

    def __init__(self, columns: FlavourColumns) -> None:
        self._columns = columns

    def accepting(self, profile: Profile) -> Flags:
        """Which flavours [F] meet all per-machine conditions of `profile`."""

        def compute() -> Flags:
            accepted = self.meeting(placement_requirements(profile), profile.alternatives)
            return accepted & self.tolerating(profile.tolerations)

        return self._columns.remember(("profile", profile.fingerprint), compute)

    def meeting(self, requirements: Term, alternatives: Sequence[Term] = ()) -> Flags:
        """Which flavours [F] meet all `requirements`, and one of the `alternatives` if any."""
        met = np.ones(len(self._columns), np.bool_)
        for requirement in requirements:
            met &= self._matched(requirement)
        if alternatives:
            met &= np.logical_or.reduce([self.meeting(term) for term in alternatives])
        return met

    def tolerating(self, tolerations: tuple[Toleration, ...]) -> Flags:
        """Which flavours [F] have only taints that these tolerations tolerate."""

        def compute() -> Flags:
            verdicts = [tolerates(tolerations, flavour.taints) for flavour in self._columns]
            return np.array(verdicts, np.bool_)

        return self._columns.remember(("tolerations", tolerations), compute)

    def _matched(self, requirement: Requirement) -> Flags:
        return self._columns.remember(
            ("requirement", requirement), lambda: self._match(requirement)
        )

    def _match(self, requirement: Requirement) -> Flags:
        if requirement.key == HOSTNAME_LABEL:
            return np.full(len(self._columns), matches(requirement, _ANY_HOSTNAME), np.bool_)
        codes, values = self._columns.label(requirement.key)
        # The absent key comes last, where the code NONE (-1) finds it.
        verdicts = [matches(requirement, value) for value in (*values, None)]
        return np.array(verdicts, np.bool_)[codes]
