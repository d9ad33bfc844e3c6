"""How one autoscaler's min and max are divided among clusters: pure functions of observations."""

from bigfleet.fedhpa.shares.rebalance import rebalance
from bigfleet.fedhpa.shares.records import (
    UNBOUNDED,
    CapacityLimit,
    ClusterBounds,
    DecisionPoint,
    HpaReport,
    Member,
    Plan,
    Reason,
    RebalanceConfig,
    ReplicaBounds,
    Share,
    Write,
)

__all__ = [
    "UNBOUNDED",
    "CapacityLimit",
    "ClusterBounds",
    "DecisionPoint",
    "HpaReport",
    "Member",
    "Plan",
    "Reason",
    "RebalanceConfig",
    "ReplicaBounds",
    "Share",
    "Write",
    "rebalance",
]
