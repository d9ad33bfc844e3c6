"""Around a part of a run: this machine for itself, its substrate, and nothing left behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from loaddriver.errors import InfrastructureError
from loaddriver.judge.schema import Summary
from loaddriver.live import View
from loaddriver.run.options import RunOptions
from loaddriver.run.part import Part
from loaddriver.run.runner import Runner
from loaddriver.run.supply import BareSupply, FleetSupply, Supply
from loaddriver.substrates.choice import Supplies, make_substrate
from loaddriver.substrates.runscope import RunScope


async def measure(
    options: RunOptions, part: Part, supplies: Supplies, view: View
) -> tuple[Summary, bool]:
    """Run to the verdict; and whether it was asked to stop when it was already being judged.

    InfrastructureError if it cannot begin.
    """
    async with _framed(options, part, supplies, view) as runner:
        summary = await runner.run()
    return summary, runner.stop_asked


async def hold(options: RunOptions, part: Part, supplies: Supplies, view: View) -> None:
    """Keep the part's clusters and BigFleet up, without load, until interrupted."""
    async with _framed(options, part, supplies, view) as runner:
        accident = await runner.hold()
    if accident is not None:
        raise InfrastructureError(accident.sentence)


@asynccontextmanager
async def _framed(
    options: RunOptions, part: Part, supplies: Supplies, view: View
) -> AsyncIterator[Runner]:
    """A runner that has this machine for itself; whatever it leaves is cleaned up."""
    logs = part.folder / "logs"
    scope = RunScope.open(part.run_id, part.prepared.profile.name, logs)
    for sentence in scope.swept:
        view.say(sentence)
    try:
        substrate = make_substrate(supplies, scope, logs, options.child_environment())
        yield Runner(options, part, substrate, _supply(part, scope), scope, view)
    finally:
        view.say(await scope.close())


def _supply(part: Part, scope: RunScope) -> Supply:
    if part.bare_of:
        return BareSupply(part.nodes)
    return FleetSupply(part.prepared, scope.data_directory)
