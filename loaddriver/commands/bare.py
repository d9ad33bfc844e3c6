"""`loaddriver bare`: plays a finished run's plan without BigFleet, as a baseline."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from loaddriver.commands.common import ended_by_signals, get_prerequisites, print_verdicts
from loaddriver.commands.flags import component_flag
from loaddriver.errors import ExitCode
from loaddriver.run.arms import bare_arm, run_bare_arm
from loaddriver.run.context import RunContext, RunOptions
from loaddriver.run.live_view import view_on
from loaddriver.run.paired_run import read_paired_run
from loaddriver.run.system import component_at
from loaddriver.substrates.choice import SubstrateName
from loaddriver.substrates.runlock import machine_claimed


def add(commands: Any) -> None:
    """Register the command."""
    command = commands.add_parser(
        "bare", help="play a finished run's plan on its nodes without BigFleet; judge the pair"
    )
    command.add_argument("results", type=Path, help="the folder of a run")
    command.add_argument("--kubernetes-version", metavar="1.X.Y")
    command.add_argument("--binaries", metavar="DIR", help="directory with kube-apiserver etc.")
    component_flag(command)
    command.set_defaults(do=_bare)


def _bare(flags: argparse.Namespace) -> ExitCode:
    pair = read_paired_run(flags.results)
    bare_arm(pair)  # rejected before prerequisites are obtained
    options = RunOptions(
        profile=pair.profile.name,
        profiles=Path(),
        results=flags.results,
        environment=dict(os.environ),
        substrate=SubstrateName(pair.summary.run.substrate),
        kubernetes_version=flags.kubernetes_version,
        binaries=flags.binaries,
        scheduler_config=pair.scheduler_config,
        components=dict(map(component_at, flags.component)),
    )
    prerequisites = get_prerequisites(options)
    with machine_claimed(options.profile) as lock, view_on(sys.stderr) as view:
        context = RunContext(options, prerequisites, lock, view)
        outcome = asyncio.run(ended_by_signals(run_bare_arm(context, pair)))
    return print_verdicts(outcome)
