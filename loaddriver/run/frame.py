"""Around a part of a run: its substrate, and nothing left behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from loaddriver.errors import InfrastructureError
from loaddriver.judge.schema import Summary
from loaddriver.run.arm import Arm
from loaddriver.run.arm_runner import ArmRunner
from loaddriver.run.context import RunOptions
from loaddriver.run.live_view import View
from loaddriver.run.node_source import FleetNodeSource, NodeSource, StaticNodeSource
from loaddriver.substrates.choice import Prerequisites, make_substrate
from loaddriver.substrates.runlock import RunLock
from loaddriver.substrates.runscope import RunScope


@dataclass(frozen=True)
class RunContext:
    """What every part of a run has in common. `lock` is this machine's, held by the run."""

    options: RunOptions
    prerequisites: Prerequisites
    lock: RunLock
    view: View


async def measure(context: RunContext, arm: Arm) -> tuple[Summary, bool]:
    """Run to the verdict; and whether it was asked to stop when it was already being judged.

    InfrastructureError if it cannot begin.
    """
    async with _arm_runner(context, arm) as runner:
        summary = await runner.run()
    return summary, runner.stop_requested


async def hold(context: RunContext, arm: Arm) -> None:
    """Keep the part's clusters and BigFleet up, without load, until interrupted."""
    async with _arm_runner(context, arm) as runner:
        run_failure = await runner.hold()
    if run_failure is not None:
        raise InfrastructureError(run_failure.sentence)


@asynccontextmanager
async def _arm_runner(context: RunContext, arm: Arm) -> AsyncIterator[ArmRunner]:
    """A runner of one part; whatever it leaves is cleaned up."""
    logs, options, view = arm.folder / "logs", context.options, context.view
    scope = RunScope.within(context.lock, arm.run_id, logs)
    for sentence in scope.swept:
        view.say(sentence)
    try:
        substrate = make_substrate(
            context.prerequisites,
            scope,
            logs,
            options.child_environment(),
            resource_metrics=arm.inputs.profile.settings.resource_metrics and not arm.bare_of,
        )
        yield ArmRunner(options, arm, substrate, _node_source(arm, scope), scope, view)
    finally:
        view.say(await scope.close())


def _node_source(arm: Arm, scope: RunScope) -> NodeSource:
    if arm.bare_of:
        return StaticNodeSource(arm.nodes)
    return FleetNodeSource(arm.inputs, scope.data_directory)
