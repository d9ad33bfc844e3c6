"""Needs of clusters: pods with the same scheduling constraints, counted by size."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

from bigfleet.model import resources
from bigfleet.model.ceiling import HIGHEST_PRIORITY
from bigfleet.model.group import PLAIN, Group, group_text

# Distinct sizes of one need; an operator merges them into far fewer.
MAX_SIZES_OF_A_NEED = 1_024
# Pods of one size. Sums of them are computed in Python integers or as floats.
MAX_PODS_OF_A_SIZE = 2**31 - 1


# An aggregate without a pod size is cut into equal pieces: at most this many, at least this large.
_MAX_PIECES, _UNITS_PER_PIECE = 4096, 64


class Operator(IntEnum):
    """Values are those of the wire enum; SAME exists on the wire only."""

    IN = 1
    NOT_IN = 2
    EXISTS = 3
    DOES_NOT_EXIST = 4
    SAME = 5
    GREATER_THAN = 100
    LESS_THAN = 101


@dataclass(frozen=True, slots=True, order=True)
class Requirement:
    """One condition on a machine's labels; `values` are sorted and distinct."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        values = f" ({', '.join(self.values)})" if self.values else ""
        return f"{self.key} {self.operator.name}{values}"


@dataclass(frozen=True, slots=True, order=True)
class Spread:
    """A topology spread constraint; the engine enforces `hard` terms, soft ones break ties."""

    topology_key: str
    max_skew: int
    #: whenUnsatisfiable is DoNotSchedule
    hard: bool
    #: with fewer domains that have machines, the global minimum is 0
    min_domains: int = 1
    #: nodeAffinityPolicy is Ignore: machines that node affinity excludes count as domains
    ignores_node_affinity: bool = False
    #: nodeTaintsPolicy is Honor: machines with taints that are not tolerated are no domains
    honors_node_taints: bool = False


@dataclass(frozen=True, slots=True, order=True)
class Taint:
    """A taint of a machine's Node, as in Kubernetes."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        value = f"={self.value}" if self.value else ""
        return f"{self.key}{value}:{self.effect}"


@dataclass(frozen=True, slots=True, order=True)
class Toleration:
    """A toleration of taints: an empty `key` matches all keys, `exists` any value, an empty
    `effect` all effects.
    """

    key: str
    exists: bool
    value: str
    effect: str

    def tolerates(self, taint: Taint) -> bool:
        """Whether a pod with this toleration tolerates `taint`."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.exists or self.value == taint.value


# A condition on machines is an AND of requirements; a pod's node affinity is an OR of such terms.
Term = tuple[Requirement, ...]


@dataclass(frozen=True)
class Profile:
    """The scheduling constraints that pods of a need share, in canonical order (`profile`)."""

    #: a machine must meet all of them
    requirements: Term
    spread: tuple[Spread, ...]
    priority: int
    #: penalty buckets
    interruption_bucket: int
    reclamation_bucket: int
    #: a machine must meet at least one of them, if there are any
    alternatives: tuple[Term, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    #: topology keys of which a domain takes at most one pod of the need
    anti_affinity: tuple[str, ...] = ()
    #: preemptionPolicy is Never
    never_preempts: bool = False

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits, equal for equal profiles only, and the same in all processes."""
        common_fields: list[object] = [
            _as_tuples(self.requirements),
            [(s.topology_key, s.max_skew, s.hard) for s in self.spread],
            (self.priority, self.interruption_bucket, self.reclamation_bucket),
        ]
        rare_fields = (
            [(s.min_domains, s.ignores_node_affinity, s.honors_node_taints) for s in self.spread],
            [_as_tuples(term) for term in self.alternatives],
            [(t.key, t.exists, t.value, t.effect) for t in self.tolerations],
            self.anti_affinity,
            self.never_preempts,
        )
        return hashlib.sha256(repr((*common_fields, rare_fields)).encode()).hexdigest()[:16]

    @cached_property
    def same_key(self) -> str | None:
        """The topology key whose value all machines of the need must share, if any."""
        return next((r.key for r in self.requirements if r.operator is Operator.SAME), None)


def _as_tuples(term: Term) -> list[tuple[str, int, tuple[str, ...]]]:
    return [(r.key, int(r.operator), r.values) for r in term]


def profile(
    requirements: Iterable[Requirement],
    spread: Iterable[Spread],
    priority: int,
    interruption_bucket: int,
    reclamation_bucket: int,
    *,
    alternatives: Iterable[Iterable[Requirement]] = (),
    tolerations: Iterable[Toleration] = (),
    anti_affinity: Iterable[str] = (),
    never_preempts: bool = False,
) -> Profile:
    """Build a Profile in canonical order, so that equal constraints give equal profiles."""
    return Profile(
        _canonical(requirements),
        tuple(sorted(set(spread))),
        priority,
        interruption_bucket,
        reclamation_bucket,
        tuple(sorted({_canonical(term) for term in alternatives})),
        tuple(sorted(set(tolerations))),
        tuple(sorted(set(anti_affinity))),
        never_preempts,
    )


def _canonical(term: Iterable[Requirement]) -> Term:
    sorted_values = (Requirement(r.key, r.operator, tuple(sorted(set(r.values)))) for r in term)
    return tuple(sorted(set(sorted_values)))


@dataclass(frozen=True, slots=True, order=True)
class NodeOverhead:
    """What DaemonSets request on each machine that they match; `amounts` as in Size."""

    requirements: Term
    alternatives: tuple[Term, ...]
    tolerations: tuple[Toleration, ...]
    amounts: tuple[tuple[str, int], ...]


class Size(NamedTuple):
    """Equal pods of a need."""

    #: requests of one pod in units of `model.resources`, sorted by resource name, none of them 0
    amounts: tuple[tuple[str, int], ...]
    #: how many pods
    pods: int


class NeedKey(NamedTuple):
    """Identity of a need among the needs of all clusters."""

    cluster: str
    fingerprint: str
    #: the text of the need's group
    group: str


@dataclass(frozen=True)
class Need:
    """Pods of one cluster with the same profile and group, by size."""

    profile: Profile
    #: distinct and sorted
    sizes: tuple[Size, ...]
    group: Group = PLAIN
    #: the cluster's limit on the priority of its pods
    priority_ceiling: int = HIGHEST_PRIORITY

    @property
    def priority(self) -> int:
        """The effective priority: that of its pods, at most `priority_ceiling`."""
        return min(self.profile.priority, self.priority_ceiling)

    @cached_property
    def key(self) -> tuple[str, str]:
        """Identity within one cluster's roll-up: (profile fingerprint, text of the group)."""
        return self.profile.fingerprint, group_text(self.group)

    @cached_property
    def pods(self) -> int:
        """The number of pods."""
        return sum(size.pods for size in self.sizes)

    @cached_property
    def aggregate(self) -> Mapping[str, int]:
        """The sum over all pods, by resource name."""
        return total_of(self.sizes)

    @cached_property
    def largest(self) -> Mapping[str, int]:
        """The largest request of any pod, by resource name."""
        found: dict[str, int] = {}
        for amounts, _ in self.sizes:
            for name, amount in amounts:
                found[name] = max(found.get(name, 0), amount)
        return found


def total_of(sizes: Iterable[Size]) -> dict[str, int]:
    """The sum over all pods of `sizes`, by resource name."""
    return resources.add({name: n * pods for name, n in amounts} for amounts, pods in sizes)


def sizes_of(amounts_and_counts: Iterable[tuple[Mapping[str, int], int]]) -> tuple[Size, ...]:
    """Build sizes in canonical order: equal ones merged, zero amounts and counts dropped."""
    found: dict[tuple[tuple[str, int], ...], int] = {}
    for amounts, count in amounts_and_counts:
        key = tuple(sorted((name, amount) for name, amount in amounts.items() if amount))
        if key and count:
            found[key] = found.get(key, 0) + count
    return tuple(Size(amounts, found[amounts]) for amounts in sorted(found))


def sizes_of_aggregate(
    aggregate: Mapping[str, int], min_unit: Mapping[str, int]
) -> tuple[Size, ...]:
    """The sizes to assume for a sender that reports only an aggregate.

    All pods have the size `min_unit`, and there are enough of them to cover the aggregate;
    resources that `min_unit` does not name are divided evenly. Without a `min_unit`, the aggregate
    is cut into equal pieces that are small compared to any machine.
    """
    unit = {name: amount for name, amount in min_unit.items() if amount > 0}
    wanted = {name: amount for name, amount in aggregate.items() if amount > 0}
    if not wanted:
        return ()
    if unit:
        pods = max([1, *(-(-wanted[name] // unit[name]) for name in unit if name in wanted)])
    else:
        pods = max(1, min(_MAX_PIECES, min(wanted.values()) // _UNITS_PER_PIECE))
    pods = min(pods, MAX_PODS_OF_A_SIZE)
    shares = {name: unit.get(name, -(-amount // pods)) for name, amount in wanted.items()}
    return sizes_of([({**unit, **shares}, pods)])
