"""Finds the differences in one observation. Pure."""

from __future__ import annotations

from bigfleet.audit.compare import demand, machines, nodes, ownership
from bigfleet.audit.compare.fleet_index import FleetIndex
from bigfleet.audit.differences import Difference, Kind, difference
from bigfleet.audit.observations import Observation


def compare(seen: Observation) -> list[Difference]:
    """Every difference between the sources, sorted. What a source that did not answer would say is
    not guessed.
    """
    index = FleetIndex(seen)
    found = [
        *(
            difference(Kind.SOURCE_UNAVAILABLE, source, error=error)
            for source, error in seen.unavailable.items()
        ),
        *machines.differences(index),
        *nodes.differences(index),
        *ownership.differences(index),
        *demand.differences(index),
    ]
    return sorted(set(found))
