"""What commands that run a profile share: one run from its options to its verdict."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from controlplane.request import Binaries, BinaryRequest, request_from
from loaddriver.errors import ExitCode, ProfileError
from loaddriver.judge.schema import Summary
from loaddriver.kindrun import prerequisites as kind
from loaddriver.kindrun.run import release_values, run_on_kind
from loaddriver.profile.settings import ProfileSettings
from loaddriver.run.arms import RunOutcome, run_arms
from loaddriver.run.context import RunContext, RunOptions
from loaddriver.run.existing_clusters import existing_clusters
from loaddriver.run.folder import KEPT_RUNS, create, prune
from loaddriver.run.inputs import RunInputs, prepare_inputs
from loaddriver.run.live_view import view_on
from loaddriver.run.system import with_components
from loaddriver.substrates.choice import Prerequisites, SubstrateName, obtain_prerequisites
from loaddriver.substrates.runlock import machine_claimed

NEXT_STEPS: Mapping[ExitCode, str] = {
    ExitCode.PASS: "",
    ExitCode.HARNESS_BUG: (
        "Next: report it with the folder {folder}; the run produced no valid result."
    ),
    ExitCode.USAGE: "Next: fix the errors above; nothing was started.",
    ExitCode.GATE_MISSED: (
        "Next: see in the report what pods waited for; to judge by other limits: "
        "loaddriver judge {folder} --expect FILE"
    ),
    ExitCode.INVALID_RUN: (
        "Next: run it again on an otherwise idle machine, or with less load (--set); the run "
        "produced no valid result."
    ),
    ExitCode.INFRASTRUCTURE: (
        "Next: read the log named above, fix the cause and run it again; the run produced no valid "
        "result."
    ),
    ExitCode.INTERRUPTED: "Next: nothing; all is cleaned up, and the report covers what ran.",
}
"""Advice for the user; `{folder}` is the results folder."""


T = TypeVar("T")


def run_once(options: RunOptions) -> RunOutcome:
    """Run to the verdict, with all arms that the options and the profile request.

    Raises LoaddriverError if the run cannot start.
    """
    inputs = prepare_inputs(options)
    check = inputs.preflight()
    for line in check.lines:
        say(line)
    check.raise_errors()
    if options.substrate is SubstrateName.KIND:
        values = release_values(options, inputs.profile)
        images = kind.image_names(inputs.profile.settings)
        found = kind.obtain(_request(options), say, images)
        outcome = run_on_kind(options, values, found, say)
    else:
        outcome = _run_here(options, inputs)
    for name in prune(options.results):
        say(
            f"removed the results of {name}: only the newest {KEPT_RUNS} runs of a profile are "
            "kept; `loaddriver runs pin` keeps a run for good"
        )
    return outcome


def _run_here(options: RunOptions, inputs: RunInputs) -> RunOutcome:
    prerequisites = get_prerequisites(options, inputs.profile.settings)
    both = options.at_once
    inherited, number = (both.lock, both.number) if both else (None, 0)
    with machine_claimed(options.profile, inherited) as lock, view_on(sys.stderr) as view:
        folder = create(options.results, options.profile, number)
        work = run_arms(RunContext(options, prerequisites, lock, view), inputs, folder)
        return asyncio.run(ended_by_signals(work))


def get_prerequisites(
    options: RunOptions, settings: ProfileSettings | None = None
) -> Prerequisites:
    """The substrate's prerequisites on this machine: found, cached, downloaded or built.

    Without a profile's `settings`, those of plain control planes.
    """
    found = obtain_prerequisites(
        options.substrate,
        _request(options),
        say,
        resource_metrics=settings is not None and settings.resource_metrics,
        karpenter=settings is not None and settings.on_karpenter,
        local_only=_local_only(options, settings) if settings else "",
        clusters=None if settings is None else existing_clusters(options, settings),
        load_workers=settings.load.workers if settings else 1,
    )
    if not options.components:
        return found
    if not isinstance(found, Binaries):
        raise ProfileError(["--component needs --substrate local, which starts the components"])
    return with_components(found, options.components)


def _request(options: RunOptions) -> BinaryRequest:
    return request_from(
        options.environment,
        binaries=options.binaries,
        kubernetes_version=options.kubernetes_version,
    )


def _local_only(options: RunOptions, settings: ProfileSettings) -> str:
    in_chart = options.substrate is SubstrateName.PODS
    one_provider = "fleet.providers" if in_chart and settings.fleet.providers else ""
    return settings.live_changes or one_provider


async def ended_by_signals(work: Coroutine[Any, Any, T]) -> T:
    """Cancel on SIGTERM and SIGINT, even if the shell's `&` made this process ignore SIGINT."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await work


def print_verdicts(outcome: RunOutcome) -> ExitCode:
    """Print the verdict of every arm, the run's own last; return the most severe exit code."""
    for summary, folder in outcome.comparisons:
        print_verdict(summary, folder)
    print_verdict(outcome.summary, outcome.folder)
    if outcome.skipped_arm:
        say(f"interrupted before {outcome.skipped_arm} started; run it again")
    elif outcome.interrupted:
        say("interrupted after the measurement: the report is complete and its verdict is valid")
    return outcome.exit_code


def print_verdict(summary: Summary, folder: Path) -> None:
    """Print the reasons, the diagnosis unless it passed, the verdict and the next step."""
    for sentence in summary.why:
        say(sentence)
    if summary.verdict != "pass":
        for sentence in summary.diagnosis:
            say(f"  {sentence}")
    say(f"{summary.verdict.upper()} {summary.run.id}: {folder / 'report.html'}")
    advice = NEXT_STEPS[ExitCode(summary.exit_code)]
    if advice:
        say(advice.format(folder=folder))


def say(line: str) -> None:
    """Print a line for the user."""
    print(line, file=sys.stderr, flush=True)


def print_table(lines: Sequence[Sequence[str]]) -> None:
    """Print lines of texts, the columns below each other."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        print("  ".join(padded).rstrip())
