"""What clusters need: aggregated pods that ask for the same kind of machine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

# One cluster's roll-up. An aggregated one has some hundred; more than this is a fault at its
# sender, and would make every other cluster wait.
MAX_NEEDS_OF_A_CLUSTER = 10_000


# The group of pods that wait although what their gang asked for is there: its first pods run in one
# domain, and others have filled that domain since. Groups of gangs begin with a bracket.
STRANDED_GROUP = "stranded"


class Operator(IntEnum):
    """Values are those of the wire enum; SAME exists on the wire only."""

    IN = 1
    NOT_IN = 2
    EXISTS = 3
    DOES_NOT_EXIST = 4
    SAME = 5


@dataclass(frozen=True, slots=True, order=True)
class Requirement:
    """One condition on a machine's labels; `values` are sorted and without repeats."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        values = f" ({', '.join(self.values)})" if self.values else ""
        return f"{self.key} {self.operator.name}{values}"


@dataclass(frozen=True, slots=True, order=True)
class Spread:
    """Spread over the domains of `topology_key`; only `hard` terms bind the engine."""

    topology_key: str
    max_skew: int
    hard: bool


@dataclass(frozen=True)
class Profile:
    """What makes two needs the same kind of demand; `profile` builds it in canonical order."""

    requirements: tuple[Requirement, ...]
    spread: tuple[Spread, ...]
    priority: int
    interruption_bucket: int
    reclamation_bucket: int

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits, equal exactly for equal profiles, the same on every machine."""
        parts = (
            [(r.key, int(r.operator), r.values) for r in self.requirements],
            [(s.topology_key, s.max_skew, s.hard) for s in self.spread],
            (self.priority, self.interruption_bucket, self.reclamation_bucket),
        )
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    @cached_property
    def same_key(self) -> str | None:
        """The topology key that all machines of the need must agree on, if any."""
        return next((r.key for r in self.requirements if r.operator is Operator.SAME), None)


def profile(
    requirements: tuple[Requirement, ...],
    spread: tuple[Spread, ...],
    priority: int,
    interruption_bucket: int,
    reclamation_bucket: int,
) -> Profile:
    """A Profile in canonical order, so that equal demands have equal profiles."""
    canonical = {Requirement(r.key, r.operator, tuple(sorted(set(r.values)))) for r in requirements}
    return Profile(
        tuple(sorted(canonical)),
        tuple(sorted(set(spread))),
        priority,
        interruption_bucket,
        reclamation_bucket,
    )


class NeedKey(NamedTuple):
    """A need among all clusters' needs."""

    cluster: str
    fingerprint: str
    group: str


@dataclass(frozen=True)
class Need:
    """The summed demand of pods with one profile and one co-location group.

    `aggregate` and `min_unit` are in the units of `model.resources`; every machine that serves the
    need must hold `min_unit` at least once.
    """

    profile: Profile
    aggregate: Mapping[str, int]
    min_unit: Mapping[str, int] = field(default_factory=dict)
    group: str = ""

    @property
    def stranded(self) -> bool:
        """Whether only machines beyond those that serve other needs are of use to it."""
        return self.group == STRANDED_GROUP

    @cached_property
    def key(self) -> tuple[str, str]:
        """Identity within one cluster's roll-up: (profile fingerprint, group)."""
        return self.profile.fingerprint, self.group
