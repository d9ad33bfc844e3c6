"""How one autoscaler's min and max are shared among clusters: pure functions of what was seen."""

from bigfleet.federation.shares.rebalance import rebalance
from bigfleet.federation.shares.records import (
    UNBOUNDED,
    At,
    Bounds,
    Full,
    Member,
    Plan,
    Reason,
    Report,
    Settings,
    Share,
    Wish,
    Write,
)

__all__ = [
    "UNBOUNDED",
    "At",
    "Bounds",
    "Full",
    "Member",
    "Plan",
    "Reason",
    "Report",
    "Settings",
    "Share",
    "Wish",
    "Write",
    "rebalance",
]
