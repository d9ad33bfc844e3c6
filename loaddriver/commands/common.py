"""What commands that run a profile share: flags, and one run from flags to verdict."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from controlplane.request import Binaries, BinaryRequest, request_from
from loaddriver.errors import ExitCode, ProfileError
from loaddriver.judge.schema import Summary
from loaddriver.kindrun import prerequisites as kind
from loaddriver.kindrun.run import release_values, run_on_kind
from loaddriver.load.commands import host_and_port
from loaddriver.profile.loading import PROFILES
from loaddriver.profile.settings import ProfileSettings
from loaddriver.run.arm_runner import RunContext
from loaddriver.run.arms import RunOutcome, run_arms
from loaddriver.run.context import RunOptions
from loaddriver.run.existing_clusters import existing_clusters
from loaddriver.run.folder import KEPT_RUNS, create, prune
from loaddriver.run.inputs import RunInputs, prepare_inputs
from loaddriver.run.live_view import view_on
from loaddriver.run.system import component_at, scheduler_config_at, system_at, with_components
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


def profile_flags(command: argparse.ArgumentParser) -> None:
    """Add the flags of commands that start a profile."""
    command.add_argument("profile", help="a folder below --profiles")
    command.add_argument("--profiles", type=Path, default=PROFILES, metavar="DIR")
    command.add_argument("--results", type=Path, default=Path("results"), metavar="DIR")
    command.add_argument(
        "--substrate", type=SubstrateName, choices=list(SubstrateName), default=SubstrateName.LOCAL
    )
    command.add_argument("--seed", type=int, help="instead of the profile's")
    command.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="e.g. soak.seconds=30"
    )
    command.add_argument("--kubernetes-version", metavar="1.X.Y")
    command.add_argument("--binaries", metavar="DIR", help="directory with kube-apiserver etc.")
    context_flag(command)
    command.set_defaults(keep=False, bare=False, sut=None, scheduler_config=None, component=())
    command.set_defaults(provider=None, provider_identities=None, provider_kubeconfigs=None)
    command.set_defaults(load_listen=None)


def context_flag(command: argparse.ArgumentParser) -> None:
    """Add the flag of commands that look into existing clusters."""
    command.add_argument(
        "--context",
        action="append",
        default=[],
        metavar="NAME",
        help="an existing cluster, by a context of KUBECONFIG; once for each cluster",
    )


def keep_flag(command: argparse.ArgumentParser) -> None:
    """Add the flag of commands that can leave everything up."""
    command.add_argument("--keep", action="store_true", help="leave everything up at the end")


def bare_flag(command: argparse.ArgumentParser) -> None:
    """Add the flag of commands that run a profile to its verdict."""
    command.add_argument(
        "--bare",
        action="store_true",
        help="play the plan once more on the same nodes without BigFleet, and judge the pair",
    )


def system_flags(command: argparse.ArgumentParser) -> None:
    """Add the flags that exchange a part of what is measured."""
    command.add_argument(
        "--sut",
        type=Path,
        metavar="DIR",
        help="take BigFleet's processes from this checkout, with its own .venv",
    )
    command.add_argument(
        "--scheduler-config", type=Path, metavar="FILE", help="a KubeSchedulerConfiguration"
    )
    command.add_argument(
        "--component",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="a binary of your own for a component, such as kube-scheduler",
    )


def load_flags(command: argparse.ArgumentParser) -> None:
    """Add the flag of commands whose load can come from other hosts."""
    command.add_argument(
        "--load-listen",
        type=address,
        metavar="HOST:PORT",
        help="wait here for `load.workers` processes `loaddriver load-worker` of other hosts",
    )


def address(text: str) -> str:
    """HOST:PORT as it was given. Raises ArgumentTypeError."""
    try:
        host_and_port(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def provider_flags(command: argparse.ArgumentParser) -> None:
    """Add the flags that name a provider of one's own."""
    command.add_argument(
        "--provider",
        metavar="HOST:PORT",
        help="a provider that runs, in place of the simulated one",
    )
    command.add_argument(
        "--provider-identities",
        metavar="DIR",
        help="where `bigfleet certs` made its certificate: the run's come from the same authority",
    )
    command.add_argument(
        "--provider-kubeconfigs",
        metavar="DIR",
        help="where the run writes CLUSTER.kubeconfig, by which the provider may see its Nodes",
    )


def _provider_overrides(flags: argparse.Namespace) -> Iterator[str]:
    """The flags as keys of the profile."""
    given = {
        "address": flags.provider,
        "identities": flags.provider_identities,
        "kubeconfigs": flags.provider_kubeconfigs,
    }
    for key, value in given.items():
        if value is not None:
            yield f"fleet.runningProvider.{key}={json.dumps(value)}"


def run_options(flags: argparse.Namespace) -> RunOptions:
    """The options of a run, from the flags. Raises ProfileError if what they name is not usable."""
    config = flags.scheduler_config
    return RunOptions(
        profile=flags.profile,
        profiles=flags.profiles,
        results=flags.results,
        environment=dict(os.environ),
        substrate=flags.substrate,
        seed=flags.seed,
        overrides=(*flags.set, *_provider_overrides(flags)),
        kubernetes_version=flags.kubernetes_version,
        binaries=flags.binaries,
        keep=flags.keep,
        bare=flags.bare,
        system=None if flags.sut is None else system_at(flags.sut, os.environ),
        scheduler_config=None if config is None else scheduler_config_at(config),
        contexts=tuple(flags.context),
        components=dict(map(component_at, flags.component)),
        load_listen=flags.load_listen or "",
    )


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
        metrics = inputs.profile.settings.resource_metrics
        found = kind.obtain(_request(options), say, resource_metrics=metrics)
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
    with machine_claimed(options.profile) as lock, view_on(sys.stderr) as view:
        folder = create(options.results, options.profile)
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
