"""Label selectors, as Kubernetes matches them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from bigfleet.kube.pod_types import LabelSelector, SelectorRequirement
from bigfleet.model.integers import is_integer


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether `labels` match; a null selector matches nothing, an empty one everything."""
    compiled = compile_selector(selector)
    return compiled is not None and compiled.matches(labels)


def intersection(selectors: Iterable[LabelSelector]) -> LabelSelector:
    """A selector that matches what all of `selectors` match; they must overlap."""
    labels: dict[str, str] = {}
    expressions: list[SelectorRequirement] = []
    for selector in selectors:
        labels |= selector.match_labels or {}
        expressions += [e for e in selector.match_expressions or () if e not in expressions]
    return LabelSelector(labels or None, expressions or None)


def selector_body(selector: LabelSelector) -> dict[str, Any]:
    """As in the spec of a CapacityRequest."""
    found: dict[str, Any] = {}
    if selector.match_labels:
        found["matchLabels"] = selector.match_labels
    if selector.match_expressions:
        found["matchExpressions"] = [
            {"key": e.key, "operator": e.operator, **({"values": e.values} if e.values else {})}
            for e in selector.match_expressions
        ]
    return found


class RequirementLike(Protocol):
    """One of `matchExpressions`."""

    @property
    def key(self) -> str: ...
    @property
    def operator(self) -> str: ...
    @property
    def values(self) -> Sequence[str] | None: ...


class LabelSelectorLike(Protocol):
    """A LabelSelector as the API server writes it."""

    @property
    def match_labels(self) -> Mapping[str, str] | None: ...
    @property
    def match_expressions(self) -> Sequence[RequirementLike] | None: ...


class LabelRequirement(NamedTuple):
    """One requirement on labels; an unknown operator matches nothing."""

    key: str
    operator: str
    values: frozenset[str]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether `labels` meet it."""
        operator = _OPERATORS.get(self.operator)
        return operator is not None and operator(labels.get(self.key), self.values)


def _compare(value: str | None, bounds: frozenset[str], sign: int) -> bool:
    if value is None or len(bounds) != 1:
        return False
    [bound] = bounds
    if not (is_integer(value) and is_integer(bound)):
        return False
    return (int(value) - int(bound)) * sign > 0


_OPERATORS: Mapping[str, Callable[[str | None, frozenset[str]], bool]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: _compare(value, values, 1),
    "Lt": lambda value, values: _compare(value, values, -1),
}


@dataclass(frozen=True, slots=True)
class Selector:
    """`pairs` that labels must contain, and `requirements`; an empty selector matches all."""

    pairs: frozenset[tuple[str, str]]
    requirements: tuple[LabelRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected."""
        return self.pairs <= labels.items() and all(r.matches(labels) for r in self.requirements)


def compile_requirements(raw: Iterable[RequirementLike] | None) -> tuple[LabelRequirement, ...]:
    """Compile `matchExpressions`."""
    return tuple(LabelRequirement(r.key, r.operator, frozenset(r.values or ())) for r in raw or ())


def compile_selector(raw: LabelSelectorLike | None) -> Selector | None:
    """Compile a LabelSelector; None, which matches nothing, stays None."""
    if raw is None:
        return None
    pairs = frozenset((raw.match_labels or {}).items())
    return Selector(pairs, compile_requirements(raw.match_expressions))
