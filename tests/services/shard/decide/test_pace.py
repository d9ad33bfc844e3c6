"""How often a shard decides: soon after an event, and never without a pause."""

from __future__ import annotations

import pytest

from bigfleet.services.shard.decide.cycle import MIN_INTERVAL_SECONDS, pause_seconds


@pytest.mark.parametrize(
    ("took_seconds", "cycle_seconds", "pause"),
    [
        (0.01, 10.0, MIN_INTERVAL_SECONDS),
        (0.01, 0.05, 0.05),
        (7.0, 10.0, 7.0),
        (30.0, 10.0, 30.0),
    ],
)
def test_a_shard_spends_at_most_half_of_its_time_deciding(
    took_seconds: float, cycle_seconds: float, pause: float
) -> None:
    """With a thousand clusters a decision takes a minute; their sessions need the CPU too."""
    assert pause_seconds(took_seconds, cycle_seconds) == pause
