"""Label selectors: whom they select, and how they are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bigfleet.kube.pod_types import LabelSelector, SelectorRequirement
from bigfleet.kube.selectors import compile_selector


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether `labels` are selected; no selector selects nothing, an empty one everything."""
    compiled = compile_selector(selector)
    return compiled is not None and compiled.matches(labels)


def intersection(selectors: Iterable[LabelSelector]) -> LabelSelector:
    """One that selects what all of `selectors` do; they must have something in common."""
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
