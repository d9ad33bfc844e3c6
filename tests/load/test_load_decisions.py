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
from bigfleet.services.shard.thinking import think
from tests.load.crowd import ManyClusters

pytestmark = [pytest.mark.load, pytest.mark.timeout(3600)]

CLUSTERS = int(os.environ.get("LOAD_CLUSTERS", "200"))


@pytest.mark.parametrize("served", [True, False], ids=["at rest", "first fill"])
def test_each_need_has_one_machine_in_the_end(*, served: bool) -> None:
    """At rest nothing is ordered; at the first fill one machine for each need."""
    view = ManyClusters(CLUSTERS, served=served).view()
    before = time.process_time()
    thought = think(view, decide, EngineConfig())
    found = {
        "needs": len(thought.demand.needs),
        "machines": len(thought.fleet),
        "flavours": len(thought.fleet.flavours),
        "cpu_seconds": round(time.process_time() - before, 2),
    }
    print(json.dumps(found))
    assert thought.decision.shortfalls == []
    assert len(thought.decision.actions) == (0 if served else found["needs"])
