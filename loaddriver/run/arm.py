"""One playing of a plan. Most runs are one; a comparison is two, one after the other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from loaddriver.profile.settings import Gate
from loaddriver.run.inputs import RunInputs
from loaddriver.run.paired_run import ServedNode

# What a summary says of BigFleet has no meaning where there is none.
_BIGFLEET_SECTIONS = (
    "machines",
    "components",
    "hopsSeconds",
    "nodes",
    "placement",
    "bare",
    "requests",
    "federation",
    "stability",
    "cost",
)


@dataclass(frozen=True)
class Arm:
    """What is played, and where its results go; `run_id` marks its processes and data.

    `nodes` are those of a bare run, which are there from the start, and `bare_of` is the run that
    had them; a run with BigFleet has neither.
    """

    inputs: RunInputs
    folder: Path
    run_id: str
    nodes: tuple[ServedNode, ...] = ()
    bare_of: str = ""

    @property
    def gates(self) -> tuple[Gate, ...]:
        """What it must reach: without BigFleet, all that does not speak of it."""
        gates = self.inputs.profile.gates
        return (
            tuple(gate for gate in gates if applies_without_bigfleet(gate))
            if self.bare_of
            else gates
        )


def applies_without_bigfleet(gate: Gate) -> bool:
    """Whether a gate has a meaning in a run without BigFleet."""
    return gate.ratio_to is None and gate.metric.partition(".")[0] not in _BIGFLEET_SECTIONS


def with_anchors(inputs: RunInputs, anchors: str) -> RunInputs:
    """The same with anchors "on" or "off"."""
    settings = msgspec.structs.replace(inputs.profile.settings, anchors=anchors)
    return replace(inputs, profile=replace(inputs.profile, settings=settings))
