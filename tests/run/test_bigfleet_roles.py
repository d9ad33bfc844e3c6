"""How the components of a run are started."""

from __future__ import annotations

from pathlib import Path

import pytest

from loaddriver.run.bigfleet_roles import cluster_roles
from loaddriver.substrates.base import Cluster
from tests.loaddriver.load_rig import shipped


@pytest.mark.parametrize(
    ("overrides", "per_second"),
    [
        ((), "0"),
        (("bigfleet.acknowledgementsPerSecond=50",), "50"),
        (("load.mode=cr", "anchors=off", "ramp.pacing=fixed"), "200"),
    ],
    ids=["pods", "on-request", "requests"],
)
def test_requests_are_acknowledged_where_that_is_timed_or_asked_for(
    overrides: tuple[str, ...], per_second: str
) -> None:
    """It is a write per pod."""
    cluster = Cluster("c1", "https://127.0.0.1:1", {}, Path("audit.log"))
    [operator, _] = cluster_roles(shipped("dev-50", *overrides).settings, cluster)
    position = operator.arguments.index("--acknowledgement-qps")
    assert operator.arguments[position + 1] == per_second
