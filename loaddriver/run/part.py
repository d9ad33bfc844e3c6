"""One playing of a plan. Most runs are one; a comparison is two, one after the other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from loaddriver.profile import Gate
from loaddriver.run.pairing import ServedNode
from loaddriver.run.prepared import Prepared

# What a summary says of BigFleet has no meaning where there is none.
_OF_BIGFLEET = (
    "machines",
    "components",
    "hopsSeconds",
    "nodes",
    "placement",
    "bare",
    "requests",
    "federation",
    "stability",
    "holdings",
)


@dataclass(frozen=True)
class Part:
    """What is played, and where its results go; `run_id` marks its processes and data.

    `nodes` are those of a bare run, which are there from the start, and `bare_of` is the run that
    had them; a run with BigFleet has neither.
    """

    prepared: Prepared
    folder: Path
    run_id: str
    nodes: tuple[ServedNode, ...] = ()
    bare_of: str = ""

    @property
    def gates(self) -> tuple[Gate, ...]:
        """What it must reach: without BigFleet, all that does not speak of it."""
        gates = self.prepared.profile.gates
        return tuple(gate for gate in gates if speaks_of_pods(gate)) if self.bare_of else gates


def speaks_of_pods(gate: Gate) -> bool:
    """Whether a gate has a meaning in a run without BigFleet."""
    return gate.ratio_to is None and gate.metric.partition(".")[0] not in _OF_BIGFLEET


def with_anchors(prepared: Prepared, anchors: str) -> Prepared:
    """The same with anchors "on" or "off"."""
    settings = msgspec.structs.replace(prepared.profile.settings, anchors=anchors)
    return replace(prepared, profile=replace(prepared.profile, settings=settings))
