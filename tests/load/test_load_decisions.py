"""One decision over very many clusters alone, without sessions beside it: what it takes.

LOAD_CLUSTERS says how many there are (default 200, that is 33,235 needs). For a profile put
`python -m cProfile -s tottime -m pytest` in front.
"""

from __future__ import annotations

import json
import os
import time

import pytest

from bigfleet.engine.decide import decide
from bigfleet.engine.snapshot import EngineConfig
from bigfleet.services.shard.decide.compute import compute
from tests.load.many_clusters import ManyClusters

pytestmark = [pytest.mark.load, pytest.mark.timeout(3600)]

CLUSTERS = int(os.environ.get("LOAD_CLUSTERS", "200"))


@pytest.mark.parametrize("served", [True, False], ids=["at rest", "first fill"])
def test_each_need_has_one_machine_in_the_end(*, served: bool) -> None:
    """At rest nothing is ordered; at the first fill one machine for each need."""
    inputs = ManyClusters(CLUSTERS, served=served).inputs()
    before = time.process_time()
    result = compute(inputs, decide, EngineConfig())
    found = {
        "needs": len(result.demand.needs),
        "machines": len(result.fleet),
        "flavours": len(result.fleet.flavours),
        "cpu_seconds": round(time.process_time() - before, 2),
    }
    print(json.dumps(found))
    assert result.decision.shortfalls == []
    assert len(result.decision.actions) == (0 if served else found["needs"])
