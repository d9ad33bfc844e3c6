"""Karpenter in a cluster of other people: what it may do there, and what its removal needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from loaddriver.substrates.existing.objects import Guest, Rule

IDENTITY = "karpenter"
RBAC = Path(__file__).with_name("manifests") / "karpenter-rbac.yaml"

_OBJECTS = ("nodepools", "nodeclaims", "nodeoverlays")
# By API group. Each is a CustomResourceDefinition that `karpenter --crds` prints.
_KINDS = {
    "karpenter.sh": _OBJECTS,
    "karpenter.kwok.sh": ("kwoknodeclasses",),
    "autoscaling.x-k8s.io": ("capacitybuffers",),
}
DEFINITIONS = frozenset(f"{kind}.{group}" for group, kinds in _KINDS.items() for kind in kinds)
_OF_THE_USER: tuple[Rule, ...] = (
    ("apiextensions.k8s.io", ("customresourcedefinitions",), ("create", "list", "delete")),
    *((group, kinds, ("create", "list", "patch")) for group, kinds in _KINDS.items()),
    ("", ("nodes",), ("patch",)),
)
# It would write them about every pod that waits for something, also about those of others.
_NOT_GRANTED = ("events",)


def karpenter_guest() -> Guest:
    """Karpenter as a run brings it along."""
    return Guest(IDENTITY, tuple(_rules()), _OF_THE_USER, DEFINITIONS)


def _rules() -> Iterator[Rule]:
    """What its ClusterRole grants it in clusters of the run's own, as far as it is needed."""
    documents: Iterator[dict[str, Any]] = yaml.safe_load_all(RBAC.read_text())
    for each in documents:
        for rule in each.get("rules", ()):
            resources = tuple(name for name in rule["resources"] if name not in _NOT_GRANTED)
            for group in rule["apiGroups"]:
                if resources:
                    yield group, resources, tuple(rule["verbs"])
