"""The error for what no machine can be provided for."""

from __future__ import annotations

from bigfleet.model.errors import BigFleetError


class Unsupported(BigFleetError):
    """A constraint that no new machine can meet, or that cannot be carried over and without which
    what is asked for would be wrong. `field` is where the pod says it.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field} {reason}")
        self.field = field
