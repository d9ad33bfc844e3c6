"""`loaddriver doctor`: what this machine can measure; starts nothing."""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec

from loaddriver.doctor.assess import Assessment, assess
from loaddriver.doctor.canary import Instruments, instruments, run_canary
from loaddriver.doctor.facts import Disk, Machine
from loaddriver.doctor.reading import (
    Roots,
    clock_synchronised,
    read_clock,
    read_cpu,
    read_disk,
    read_limits,
    read_memory,
    sync_times,
)
from loaddriver.doctor.text import lines_of
from loaddriver.errors import ExitCode
from loaddriver.profile.loading import PROFILES, load_profile, profile_names
from loaddriver.substrates.base import SubstrateError
from loaddriver.substrates.datadir import data_roots, root_with_space


def add(commands: Any) -> None:
    """Register the command."""
    command = commands.add_parser(
        "doctor", help="print what this machine can measure; exit code 2 if not these profiles"
    )
    command.add_argument("profiles", nargs="*", metavar="PROFILE", help="instead of all profiles")
    command.add_argument("--profiles", type=Path, default=PROFILES, metavar="DIR", dest="folder")
    command.add_argument("--results", type=Path, default=Path("results"), metavar="DIR")
    command.add_argument("--json", action="store_true", help="all facts and findings as JSON")
    command.set_defaults(do=_doctor)


def _doctor(flags: argparse.Namespace) -> ExitCode:
    names = flags.profiles or profile_names(flags.folder)
    profiles = [load_profile(name, flags.folder) for name in names]
    roots = Roots()
    machine = examine(roots, instruments(roots.quotas()), flags.results)
    found = assess(machine, profiles)
    if flags.json:
        print(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        print("\n".join(lines_of(found)))
    return exit_code(found, bool(flags.profiles))


def exit_code(found: Assessment, named: bool) -> ExitCode:
    """Whether all `named` profiles can be measured, or any of them if none was named."""
    fits = [each.fits for each in found.profiles]
    return ExitCode.PASS if (all if named else any)(fits) else ExitCode.USAGE


def examine(roots: Roots, by: Instruments, results: Path) -> Machine:
    """Read everything and run the canary, for about a quarter of a minute."""
    return Machine(
        cpu=read_cpu(roots, len(os.sched_getaffinity(0))),
        memory=read_memory(roots),
        clock=read_clock(roots, clock_synchronised()),
        data=_disk(_data_root(), roots),
        results=_disk(next(p for p in (results, *results.parents) if p.exists()), roots),
        limits=read_limits(roots),
        noise=run_canary(by, has_quota=bool(roots.quotas())),
    )


def _data_root() -> Path:
    """Where a run would keep its clusters' data; if no place has room, the one with most."""
    try:
        return root_with_space(data_roots())
    except SubstrateError:
        there = (root for root in data_roots() if root.is_dir())
        return max(there, key=lambda root: shutil.disk_usage(root).free)


def _disk(path: Path, roots: Roots) -> Disk:
    return read_disk(path, roots, sync_times, shutil.disk_usage(path).free)
