"""What a pod requires of a node: resources and labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

_Rule = Callable[[str | None, tuple[str, ...]], bool]


def _compared(label: str | None, bound: str, holds: Callable[[int, int], bool]) -> bool:
    try:
        return label is not None and holds(int(label), int(bound))
    except ValueError:
        return False


# As in Kubernetes' node affinity: an absent label is in no set and not comparable.
_RULES: Mapping[str, _Rule] = {
    "In": lambda label, values: label in values,
    "NotIn": lambda label, values: label not in values,
    "Exists": lambda label, _: label is not None,
    "DoesNotExist": lambda label, _: label is None,
    "Gt": lambda label, values: _compared(label, values[0], int.__gt__),
    "Lt": lambda label, values: _compared(label, values[0], int.__lt__),
}


class Requirement(msgspec.Struct, frozen=True):
    """One expression of a node selector term."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def accepts(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels satisfies it."""
        return _RULES[self.operator](labels.get(self.key), self.values)


@dataclass(frozen=True)
class PodShape:
    """What every pod of a group requires; one object creates a group, so its pods are equal.

    `requests` are in the units of `bigfleet.model.resources`, including pod slots.
    `node_terms` are alternatives, each a conjunction; None without node affinity.
    """

    requests: tuple[tuple[str, int], ...]
    node_selector: tuple[tuple[str, str], ...] = ()
    node_terms: tuple[tuple[Requirement, ...], ...] | None = None

    def accepts(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels may run the pod."""
        if any(labels.get(key) != value for key, value in self.node_selector):
            return False
        if self.node_terms is None:
            return True
        # A term without expressions selects nothing, as in Kubernetes.
        return any(
            term and all(requirement.accepts(labels) for requirement in term)
            for term in self.node_terms
        )

    def fitting_pods(self, free: Mapping[str, int]) -> int:
        """How many such pods fit into the free capacity of a node."""
        return max(
            0, min(free.get(name, 0) // amount for name, amount in self.requests if amount > 0)
        )
