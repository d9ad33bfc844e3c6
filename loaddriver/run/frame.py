"""Around a part of a run: its substrate, and nothing left behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from loaddriver.errors import InfrastructureError
from loaddriver.judge.schema import Summary
from loaddriver.live import View
from loaddriver.run.options import RunOptions
from loaddriver.run.part import Part
from loaddriver.run.runner import Runner
from loaddriver.run.supply import BareSupply, FleetSupply, Supply
from loaddriver.substrates.choice import Supplies, make_substrate
from loaddriver.substrates.runlock import RunLock
from loaddriver.substrates.runscope import RunScope


@dataclass(frozen=True)
class Ground:
    """What every part of a run has in common. `lock` is this machine's, held by the run."""

    options: RunOptions
    supplies: Supplies
    lock: RunLock
    view: View


async def measure(ground: Ground, part: Part) -> tuple[Summary, bool]:
    """Run to the verdict; and whether it was asked to stop when it was already being judged.

    InfrastructureError if it cannot begin.
    """
    async with _framed(ground, part) as runner:
        summary = await runner.run()
    return summary, runner.stop_asked


async def hold(ground: Ground, part: Part) -> None:
    """Keep the part's clusters and BigFleet up, without load, until interrupted."""
    async with _framed(ground, part) as runner:
        accident = await runner.hold()
    if accident is not None:
        raise InfrastructureError(accident.sentence)


@asynccontextmanager
async def _framed(ground: Ground, part: Part) -> AsyncIterator[Runner]:
    """A runner of one part; whatever it leaves is cleaned up."""
    logs, options, view = part.folder / "logs", ground.options, ground.view
    scope = RunScope.within(ground.lock, part.run_id, logs)
    for sentence in scope.swept:
        view.say(sentence)
    try:
        substrate = make_substrate(
            ground.supplies,
            scope,
            logs,
            options.child_environment(),
            resource_metrics=part.prepared.profile.settings.resource_metrics and not part.bare_of,
        )
        yield Runner(options, part, substrate, _supply(part, scope), scope, view)
    finally:
        view.say(await scope.close())


def _supply(part: Part, scope: RunScope) -> Supply:
    if part.bare_of:
        return BareSupply(part.nodes)
    return FleetSupply(part.prepared, scope.data_directory)
