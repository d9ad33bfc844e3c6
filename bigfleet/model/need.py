"""What clusters need: pods that ask for the same kind of machine, counted by size."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

from bigfleet.model import resources
from bigfleet.model.ceiling import HIGHEST_PRIORITY

# One cluster's roll-up has some hundred; more is a fault at its sender, and makes others wait.
MAX_NEEDS_OF_A_CLUSTER = 10_000
# One need's distinct sizes; an operator merges them into far fewer.
MAX_SIZES_OF_A_NEED = 1_024
# One size's pods. Sums of them are computed in Python's own integers or as floats.
MAX_PODS_OF_A_SIZE = 2**31 - 1

# The group of pods that kube-scheduler cannot place although their need is met: only a machine
# beyond those that serve other needs is of use to them. Other groups begin with a bracket.
ADDITIONAL_GROUP = "additional"
FOLDED_GROUP_PREFIX = "folded:"  # so begin the groups that a shard makes itself; it takes none in

HOSTNAME_LABEL = "kubernetes.io/hostname"

# A quantity without a size of its own is cut into so many equal pieces.
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
    """One condition on a machine's labels; `values` are sorted and without repeats."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        values = f" ({', '.join(self.values)})" if self.values else ""
        return f"{self.key} {self.operator.name}{values}"


@dataclass(frozen=True, slots=True, order=True)
class Spread:
    """Keep the domains of `topology_key` within `max_skew` of each other.

    Only `hard` terms bind the engine; soft ones break ties. While fewer than `min_domains` domains
    have machines, the emptiest domain counts as empty. Machines that the pods' node affinity
    excludes are domains only if `ignores_node_affinity`; those with taints that the pods do not
    tolerate are domains unless `honors_node_taints`.
    """

    topology_key: str
    max_skew: int
    hard: bool
    min_domains: int = 1
    ignores_node_affinity: bool = False
    honors_node_taints: bool = False


@dataclass(frozen=True, slots=True, order=True)
class Taint:
    """A mark on a machine that keeps pods away; `effect` as in Kubernetes."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        value = f"={self.value}" if self.value else ""
        return f"{self.key}{value}:{self.effect}"


@dataclass(frozen=True, slots=True, order=True)
class Toleration:
    """Which taints do not matter. An empty `key` means all, `exists` any value, an empty `effect`
    every effect.
    """

    key: str
    exists: bool
    value: str
    effect: str

    def tolerates(self, taint: Taint) -> bool:
        """Whether `taint` does not keep the pod away."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.exists or self.value == taint.value


# A condition on machines is an AND of requirements; a pod's node affinity is an OR of such terms.
Term = tuple[Requirement, ...]


@dataclass(frozen=True)
class Profile:
    """What makes two pods ask for the same kind of machine; `profile` builds it in canonical order.

    A machine must meet all `requirements`, at least one of the `alternatives` (if there are any),
    and have no taint that `tolerations` leave. `anti_affinity` holds the topology keys of which a
    domain takes at most one pod of the need. `never_preempts` is preemptionPolicy Never.
    """

    requirements: Term
    spread: tuple[Spread, ...]
    priority: int
    interruption_bucket: int
    reclamation_bucket: int
    alternatives: tuple[Term, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    anti_affinity: tuple[str, ...] = ()
    never_preempts: bool = False

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits, equal exactly for equal profiles, the same on every machine."""
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
        """The topology key that all machines of the need must agree on, if any."""
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
    """A Profile in canonical order, so that equal demands have equal profiles."""
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
    """What DaemonSets take of each machine that they match; `amounts` as of Size."""

    requirements: Term
    alternatives: tuple[Term, ...]
    tolerations: tuple[Toleration, ...]
    amounts: tuple[tuple[str, int], ...]


class Size(NamedTuple):
    """What one pod asks for, in units of `model.resources` by resource name, sorted, none of them
    zero; and how many such `pods` there are.
    """

    amounts: tuple[tuple[str, int], ...]
    pods: int


class NeedKey(NamedTuple):
    """A need among all clusters' needs."""

    cluster: str
    fingerprint: str
    group: str


@dataclass(frozen=True)
class Need:
    """Pods of one cluster with one profile and one group, by size; `sizes` are distinct and sorted.

    `group` is "" for plain pods, ADDITIONAL_GROUP, or a text that is the same for just those pods
    which must share a domain, or which spread over domains or avoid each other. Whatever priority
    its pods claim, it counts as having `priority_ceiling` at most.
    """

    profile: Profile
    sizes: tuple[Size, ...]
    group: str = ""
    priority_ceiling: int = HIGHEST_PRIORITY

    @property
    def priority(self) -> int:
        """That by which it is served, which may be lower than its pods claim."""
        return min(self.profile.priority, self.priority_ceiling)

    @property
    def is_additional(self) -> bool:
        """Whether only machines beyond those that serve other needs are of use to it."""
        return self.group == ADDITIONAL_GROUP

    @cached_property
    def key(self) -> tuple[str, str]:
        """Identity within one cluster's roll-up: (profile fingerprint, group)."""
        return self.profile.fingerprint, self.group

    @cached_property
    def pods(self) -> int:
        """How many pods there are."""
        return sum(size.pods for size in self.sizes)

    @cached_property
    def aggregate(self) -> Mapping[str, int]:
        """The sum over all pods, by resource name."""
        return total_of(self.sizes)

    @cached_property
    def largest(self) -> Mapping[str, int]:
        """The largest amount of each resource that any of the pods asks for."""
        found: dict[str, int] = {}
        for amounts, _ in self.sizes:
            for name, amount in amounts:
                found[name] = max(found.get(name, 0), amount)
        return found


def total_of(sizes: Iterable[Size]) -> dict[str, int]:
    """The sum over all pods of `sizes`, by resource name."""
    return resources.add({name: n * pods for name, n in amounts} for amounts, pods in sizes)


def sizes_of(amounts_and_counts: Iterable[tuple[Mapping[str, int], int]]) -> tuple[Size, ...]:
    """Sizes in canonical order: equal ones joined, zero amounts and counts left out."""
    found: dict[tuple[tuple[str, int], ...], int] = {}
    for amounts, count in amounts_and_counts:
        key = tuple(sorted((name, amount) for name, amount in amounts.items() if amount))
        if key and count:
            found[key] = found.get(key, 0) + count
    return tuple(Size(amounts, found[amounts]) for amounts in sorted(found))


def sizes_of_aggregate(
    aggregate: Mapping[str, int], min_unit: Mapping[str, int]
) -> tuple[Size, ...]:
    """The sizes to assume for a sender that names none.

    All pods are taken to be as large as `min_unit`, and to be so many that no amount of the
    aggregate is left over. What min_unit does not name is shared out evenly among them. Without a
    min_unit at all the aggregate may be cut at will: it becomes equal pieces, small against any
    machine.
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
