"""`loaddriver wire`: plays a fleet without Kubernetes, to see what shards do with a large one."""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path
from typing import Any

from controlplane.request import Binaries
from loaddriver.commands.common import NEXT_STEPS, ended_by_signals, get_prerequisites, say
from loaddriver.errors import ExitCode, InfrastructureError
from loaddriver.profile.loading import PROFILES
from loaddriver.run.context import RunOptions
from loaddriver.run.folder import create, point_latest
from loaddriver.substrates.runlock import machine_claimed
from loaddriver.wire.run import play
from loaddriver.wire.settings import load_wire_profile


def add(commands: Any) -> None:
    """Register the command."""
    command = commands.add_parser(
        "wire", help="play a large fleet on real shards, without Kubernetes"
    )
    command.add_argument("profile", help="a folder below --profiles with a wire.yaml")
    command.add_argument("--profiles", type=Path, default=PROFILES, metavar="DIR")
    command.add_argument("--results", type=Path, default=Path("results"), metavar="DIR")
    command.add_argument("--seed", type=int, help="instead of the profile's")
    command.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="e.g. soakSeconds=30"
    )
    command.set_defaults(do=_wire)


def _wire(flags: argparse.Namespace) -> ExitCode:
    profile = load_wire_profile(flags.profile, flags.profiles, tuple(flags.set), flags.seed)
    common = RunOptions(flags.profile, flags.profiles, flags.results, os.environ)
    binaries = get_prerequisites(common)
    if not isinstance(binaries, Binaries):
        raise InfrastructureError("etcd is needed as a program")
    environment = common.child_environment()
    with machine_claimed(flags.profile) as lock:
        folder = create(flags.results, flags.profile)
        work = play(profile, environment, binaries, lock, folder, say)
        summary = asyncio.run(ended_by_signals(work))
    point_latest(folder)
    for line in summary.lines():
        say(line)
    for sentence in summary.why:
        say(sentence)
    say(f"{summary.verdict.upper()} {summary.run.id}: {folder / 'summary.json'}")
    if advice := NEXT_STEPS[ExitCode(summary.exit_code)]:
        say(advice.format(folder=folder))
    return ExitCode(summary.exit_code)
