"""The cost of evicting a pod, and the annotations that forbid it. Pure.

The unit is Karpenter's: a pod costs 1, adjusted by its deletion cost and its priority to between
-10 and 10. The reclamation penalty, dollars lost when the work has to move, is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from bigfleet.model import resources
from bigfleet.model.errors import InvalidInput

RECLAMATION_PENALTY = "bigfleet.lucy.sh/reclamation-penalty"
DO_NOT_DISRUPT = "bigfleet.lucy.sh/do-not-disrupt"
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
# The annotations by which a pod, or a Node, must not be disrupted.
_POD_BLOCKING_ANNOTATIONS = (
    (DO_NOT_DISRUPT, "true"),
    ("karpenter.sh/do-not-disrupt", "true"),
    ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
)
_NODE_BLOCKING_ANNOTATIONS = (
    (DO_NOT_DISRUPT, "true"),
    ("karpenter.sh/do-not-disrupt", "true"),
    ("cluster-autoscaler.kubernetes.io/scale-down-disabled", "true"),
)
# All annotations of a pod that are read here.
POD_ANNOTATIONS = (
    RECLAMATION_PENALTY,
    _DELETION_COST,
    *(name for name, _ in _POD_BLOCKING_ANNOTATIONS),
)
_MAX_COST = 10.0


def eviction_cost(priority: int, annotations: Mapping[str, str]) -> float:
    """The cost of evicting a pod; an invalid value counts as absent."""
    cost = 1.0 + _integer(annotations.get(_DELETION_COST)) / 2**27 + priority / 2**25
    return max(-_MAX_COST, min(_MAX_COST, cost)) + _dollars(
        annotations.get(RECLAMATION_PENALTY, "")
    )


def pod_blocking_annotation(annotations: Mapping[str, str]) -> str:
    """The annotation that forbids the pod's eviction; "" for none."""
    return _blocking_annotation(_POD_BLOCKING_ANNOTATIONS, annotations)


def node_blocking_annotation(annotations: Mapping[str, str]) -> str:
    """The annotation that forbids the Node's removal; "" for none."""
    return _blocking_annotation(_NODE_BLOCKING_ANNOTATIONS, annotations)


def _blocking_annotation(
    blocking: tuple[tuple[str, str], ...], annotations: Mapping[str, str]
) -> str:
    found = (f"{name}={value}" for name, value in blocking if annotations.get(name) == value)
    return next(found, "")


def _integer(text: str | None) -> int:
    try:
        value = int(text or 0)
    except ValueError:
        return 0
    return value if -(2**31) <= value < 2**31 else 0


@lru_cache(maxsize=4096)
def _dollars(amount: str) -> float:
    try:
        limit = resources.MAX_AGGREGATE_UNITS
        return resources.parse("dollars", amount or "0", round_up=True, limit=limit) / 1000
    except InvalidInput:
        return 0.0
