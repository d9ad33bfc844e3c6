"""A fleet that is short of something, as small as it can be."""

from __future__ import annotations

from bigfleet.engine.explain.shortfall_report import ShortfallGroup, report
from bigfleet.engine.snapshot import Flavour
from bigfleet.model.need import Need
from tests.engine.engine_pods import pods
from tests.engine.engine_rig import RACK, configured
from tests.engine.engine_story import Story


def short_of(need: Need, cycles: int = 6) -> tuple[ShortfallGroup, Flavour]:
    """The only shortfall of a fleet whose one machine, of 8 CPU, serves another cluster; and the
    machine's flavour.
    """
    story = Story(
        [configured("m", "west", cpu=8, labels={RACK: "own"})],
        ("east", need),
        ("west", pods((1, 8))),
    )
    for _ in range(cycles):
        story.cycle()
    (row,) = report(story.fleet, story.demand, story.decision).rows
    return row, story.fleet.flavours[0]
