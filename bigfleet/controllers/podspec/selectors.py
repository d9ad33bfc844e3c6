"""Label selectors: whom they select, and how they are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bigfleet.controllers.podspec.objects import Expression, LabelSelector


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether `labels` are selected; no selector selects nothing, an empty one everything."""
    if selector is None:
        return False
    exact = (selector.match_labels or {}).items()
    return all(labels.get(key) == value for key, value in exact) and all(
        _meets(expression, labels) for expression in selector.match_expressions or ()
    )


def _meets(expression: Expression, labels: Mapping[str, str]) -> bool:
    value = labels.get(expression.key)
    match expression.operator:
        case "In":
            return value is not None and value in (expression.values or ())
        case "NotIn":
            return value is None or value not in (expression.values or ())
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    return False


def both(selectors: Iterable[LabelSelector]) -> LabelSelector:
    """One that selects what all of `selectors` do; they must have something in common."""
    labels: dict[str, str] = {}
    expressions: list[Expression] = []
    for selector in selectors:
        labels |= selector.match_labels or {}
        expressions += [e for e in selector.match_expressions or () if e not in expressions]
    return LabelSelector(labels or None, expressions or None)


def plain(selector: LabelSelector) -> dict[str, Any]:
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
