"""The error for what no machine can be provided for."""

from __future__ import annotations

from bigfleet.model.errors import BigFleetError


class Unsupported(BigFleetError):
    """A constraint that no new machine can meet, or that cannot be carried over and without which
    what is asked for would be wrong. `field` is where the pod says it, and `metric_label` the same
    without names that people choose, of which there are too many for a metric's label.
    """

    def __init__(self, field: str, reason: str, metric_label: str = "") -> None:
        super().__init__(f"{field} {reason}")
        self.field, self.metric_label = field, metric_label or field
