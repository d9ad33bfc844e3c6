"""Around a run: this machine for itself, the chosen substrate, and nothing left behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from controlplane.request import Binaries
from loaddriver.errors import InfrastructureError
from loaddriver.judge.schema import Summary
from loaddriver.live import View
from loaddriver.run.options import RunOptions
from loaddriver.run.prepared import Prepared
from loaddriver.run.runner import Runner
from loaddriver.substrates.choice import make_substrate
from loaddriver.substrates.runscope import RunScope


async def measure(
    options: RunOptions, prepared: Prepared, binaries: Binaries, folder: Path, view: View
) -> Summary:
    """Run to the verdict; results lie in `folder`. InfrastructureError if it cannot begin."""
    async with _framed(options, prepared, binaries, folder, view) as runner:
        return await runner.run()


async def hold(
    options: RunOptions, prepared: Prepared, binaries: Binaries, folder: Path, view: View
) -> None:
    """Keep the profile's clusters and BigFleet up, without load, until interrupted."""
    async with _framed(options, prepared, binaries, folder, view) as runner:
        accident = await runner.hold()
    if accident is not None:
        raise InfrastructureError(accident.sentence)


@asynccontextmanager
async def _framed(
    options: RunOptions, prepared: Prepared, binaries: Binaries, folder: Path, view: View
) -> AsyncIterator[Runner]:
    """A runner that has this machine for itself; whatever it leaves is cleaned up."""
    scope = RunScope.open(folder.name, prepared.profile.name, folder / "logs")
    for sentence in scope.swept:
        view.say(sentence)
    try:
        substrate = make_substrate(
            options.substrate, scope, folder / "logs", binaries, options.child_environment()
        )
        yield Runner(options, prepared, substrate, scope, folder, view)
    finally:
        view.say(await scope.close())
