"""The error for constraints that are not supported."""

from __future__ import annotations

from bigfleet.model.errors import BigFleetError


class Unsupported(BigFleetError):
    """A constraint that no new machine can meet, or that a CapacityRequest cannot express and must
    not drop. `field` is its field in the pod, and `metric_label` the same without user-chosen
    names, to bound the metric's cardinality.
    """

    def __init__(self, field: str, reason: str, metric_label: str = "") -> None:
        super().__init__(f"{field} {reason}")
        self.field, self.metric_label = field, metric_label or field
