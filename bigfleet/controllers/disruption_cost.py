"""What it costs to evict a pod, and what forbids it. Pure.

The unit is Karpenter's: an ordinary pod costs 1; what its owner says of it (the deletion cost that
ReplicaSets go by) and its priority move that between -10 and 10. Dollars that its owner would lose
when the work has to move are added.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from bigfleet.model import resources
from bigfleet.model.errors import InvalidInput

RECLAMATION_PENALTY = "bigfleet.lucy.sh/reclamation-penalty"
DO_NOT_DISRUPT = "bigfleet.lucy.sh/do-not-disrupt"
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
# The annotations by which a pod, or a Node, says that it must be left alone.
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
# All that is read of a pod's annotations here.
POD_ANNOTATIONS = (
    RECLAMATION_PENALTY,
    _DELETION_COST,
    *(name for name, _ in _POD_BLOCKING_ANNOTATIONS),
)
_MAX_COST = 10.0


def eviction_cost(priority: int, annotations: Mapping[str, str]) -> float:
    """What it costs to evict a pod; a value that is no number counts as absent."""
    cost = 1.0 + _integer(annotations.get(_DELETION_COST)) / 2**27 + priority / 2**25
    return max(-_MAX_COST, min(_MAX_COST, cost)) + _dollars(
        annotations.get(RECLAMATION_PENALTY, "")
    )


def pod_blocking_annotation(annotations: Mapping[str, str]) -> str:
    """The annotation by which a pod forbids its eviction; "" for none."""
    return _blocking_annotation(_POD_BLOCKING_ANNOTATIONS, annotations)


def node_blocking_annotation(annotations: Mapping[str, str]) -> str:
    """The annotation by which a Node forbids its removal; "" for none."""
    return _blocking_annotation(_NODE_BLOCKING_ANNOTATIONS, annotations)


def _blocking_annotation(marks: tuple[tuple[str, str], ...], annotations: Mapping[str, str]) -> str:
    found = (f"{name}={value}" for name, value in marks if annotations.get(name) == value)
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
