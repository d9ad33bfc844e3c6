"""How often an audit looks."""

from __future__ import annotations

import pytest

from bigfleet.audit.following import follow
from bigfleet.audit.observations import Observation
from tests.audit.observed import healthy, with_shard

_GONE = with_shard(healthy(), "s1", connected=set())


@pytest.mark.parametrize(
    ("looks", "waits", "lasts"),
    [
        ([healthy()], [], False),
        ([_GONE, healthy()], [4.0], False),
        ([_GONE, _GONE, healthy()], [4.0, 12.0], False),
        ([_GONE, _GONE, _GONE], [4.0, 12.0], True),
    ],
)
async def test_no_more_is_observed_once_nothing_is_left_of_what_differed(
    looks: list[Observation], waits: list[float], lasts: bool
) -> None:
    """What is not there at first, or has gone, does not last; what lasts is seen at the end."""
    left, waited = iter(looks), list[float]()

    async def observe() -> Observation:
        return next(left)

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    seen, findings = await follow(observe, wait, 16.0)
    assert seen == looks
    assert waited == waits
    assert bool(findings.lasting) is lasts
