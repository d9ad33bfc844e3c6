"""`loaddriver chart-values`, `inventory` and `karpenter-setup`: a profile for charts/scaletest."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any

import yaml

from bigfleet.kube.access import connect
from bigfleet.kube.client import CONNECTION_ERRORS, ApiError
from bigfleet.model.errors import UNDECODABLE, InvalidInput
from loaddriver.commands.flags import profile_flags, run_options
from loaddriver.errors import ExitCode, InfrastructureError, ProfileError
from loaddriver.karpenter.preparation import definitions_of, prepare, write_instance_types
from loaddriver.profile.loading import load_profile
from loaddriver.run.chart_values import chart_values, heading
from loaddriver.run.host_cluster_values import host_cluster_heading, host_cluster_values
from loaddriver.run.inputs import prepare_inputs
from loaddriver.sizing.inventory import save_inventory
from loaddriver.substrates.choice import SubstrateName


def add(commands: Any) -> None:
    """Register all of them."""
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
    setup = commands.add_parser(
        "karpenter-setup",
        help="give a cluster what Karpenter needs there to serve a profile, as the chart does",
    )
    profile_flags(setup)
    setup.add_argument(
        "--kubeconfig", type=Path, required=True, metavar="FILE", help="of an administrator"
    )
    setup.add_argument(
        "--definitions", type=Path, required=True, metavar="FILE", help="of `karpenter --crds FILE`"
    )
    setup.add_argument(
        "--instance-types",
        type=Path,
        required=True,
        metavar="FILE",
        help="to be written, for Karpenter's flag --instance-types-file-path",
    )
    setup.set_defaults(do=_karpenter_setup)


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


def _karpenter_setup(flags: argparse.Namespace) -> ExitCode:
    inputs = prepare_inputs(run_options(flags))
    try:
        definitions = definitions_of(flags.definitions.read_bytes())
    except (OSError, *UNDECODABLE) as error:
        raise ProfileError([f"--definitions {flags.definitions}: {error}"]) from error
    write_instance_types(inputs.machines, flags.instance_types)

    async def into_cluster() -> None:
        async with await connect(flags.kubeconfig) as client:
            await prepare(client, definitions, inputs.machines, inputs.profile.settings)

    try:
        asyncio.run(into_cluster())
    except (InvalidInput, ApiError, *CONNECTION_ERRORS) as error:
        raise InfrastructureError(f"--kubeconfig {flags.kubeconfig}: {error}") from error
    return ExitCode.PASS


def _inventory(flags: argparse.Namespace) -> ExitCode:
    save_inventory(prepare_inputs(run_options(flags)).machines, flags.output)
    return ExitCode.PASS
