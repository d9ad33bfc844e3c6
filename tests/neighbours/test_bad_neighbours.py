"""However badly one cluster's operator behaves, the others get their machines nearly as usual.

Whatever is measured is compared with the same, measured in the same run beside a process that takes
as much CPU and bothers nobody.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from tests.support.neighbours_rig import beside, bound_seconds, neighbourhood

_TIMES = 7
# So many times as long as without it, and a hiccup, may a machine take to come beside a bad one.
_RATIO = 4.0
_MOST_MORE_BYTES = 96 * 2**20


@pytest.mark.parametrize(
    "manner", ["silent", "slow", "flooding", "never_reading", "oversized", "storming"]
)
async def test_a_healthy_cluster_hardly_notices(tmp_path: Path, manner: str) -> None:
    """From its roll-up until its machine is CONFIGURED, beside an operator that answers nothing,
    answers late, says roll-ups without end, never reads, says too much, or dials without end; and
    the shard's memory stays within bounds, its decisions go on, and no other machine moves.
    """
    async with neighbourhood(tmp_path) as here:
        await here.healthy.typical_seconds(3)
        async with beside("burning", here.shard):
            usual_seconds = await here.healthy.typical_seconds(_TIMES)
        before_bytes = here.shard.resident_bytes()
        async with beside(manner, here.shard):
            beside_seconds = [await here.healthy.grows() for _ in range(_TIMES)]
            more_bytes = here.shard.resident_bytes() - before_bytes
        # Tests beside this one may have begun to take CPU meanwhile.
        async with beside("burning", here.shard):
            usual_seconds = max(usual_seconds, await here.healthy.typical_seconds(_TIMES))
        told = await here.shard.metrics()
        assert here.at_work("healthy") == {*here.healthy.joined}
        assert {order for order, _ in here.provider.orders} == {"configure"}
    found = f"{usual_seconds:.3f} s, beside it {beside_seconds}"
    assert statistics.median(beside_seconds) <= bound_seconds(usual_seconds, _RATIO), found
    assert more_bytes <= _MOST_MORE_BYTES
    assert told.get("bigfleet_shard_cycle_failures_total", 0) == 0
    assert told["bigfleet_shard_needs_quarantined"] == 0
