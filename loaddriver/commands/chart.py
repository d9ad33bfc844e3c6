"""`loaddriver chart-values` and `loaddriver inventory`: a profile for charts/scaletest."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import yaml

from loaddriver.commands.flags import profile_flags, run_options
from loaddriver.errors import ExitCode
from loaddriver.profile.loading import load_profile
from loaddriver.run.chart_values import chart_values, heading
from loaddriver.run.host_cluster_values import host_cluster_heading, host_cluster_values
from loaddriver.run.inputs import prepare_inputs
from loaddriver.sizing.inventory import save_inventory
from loaddriver.substrates.choice import SubstrateName


def add(commands: Any) -> None:
    """Register both commands."""
    values = commands.add_parser(
        "chart-values",
        help="print a profile as values of charts/scaletest, with --substrate existing for the "
        "cluster that it is installed in; start nothing",
    )
    profile_flags(values)
    values.set_defaults(do=_values)
    inventory = commands.add_parser("inventory", help="write the machines of a profile's fleet")
    profile_flags(inventory)
    inventory.add_argument("--output", type=Path, required=True, metavar="FILE")
    inventory.set_defaults(do=_inventory)


def _values(flags: argparse.Namespace) -> ExitCode:
    profile = load_profile(flags.profile, flags.profiles, flags.set, flags.seed)
    if flags.substrate is SubstrateName.EXISTING:
        values = host_cluster_values(profile, flags.set, flags.seed)
        print(host_cluster_heading(profile, flags.set), end="")
    else:
        values = chart_values(profile, flags.set, flags.seed)
        print(heading(profile), end="")
    print(yaml.safe_dump(values, sort_keys=False), end="")
    return ExitCode.PASS


def _inventory(flags: argparse.Namespace) -> ExitCode:
    save_inventory(prepare_inputs(run_options(flags)).machines, flags.output)
    return ExitCode.PASS
