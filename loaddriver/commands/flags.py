"""The flags of commands that run a profile, and the options that they make."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path

from loaddriver.load.commands import host_and_port
from loaddriver.profile.loading import PROFILES
from loaddriver.run.context import AtOnce, RunOptions
from loaddriver.run.system import BIGFLEET, component_at, scheduler_config_at, system_at
from loaddriver.substrates.choice import SubstrateName


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
    command.set_defaults(load_listen=None, of_two=None)


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


def component_flag(command: argparse.ArgumentParser, more: str = "") -> None:
    """Add the flag that exchanges components of the control planes."""
    command.add_argument(
        "--component",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help=f"a program of your own for a component, such as kube-scheduler{more}",
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
    component_flag(command, f", or for {BIGFLEET}")


def load_flags(command: argparse.ArgumentParser) -> None:
    """Add the flag of commands whose load can come from other hosts."""
    command.add_argument(
        "--load-listen",
        type=address,
        metavar="HOST:PORT",
        help="wait here for `load.workers` processes `loaddriver load-worker` of other hosts",
    )


def at_once_flag(command: argparse.ArgumentParser) -> None:
    """Add the flag by which `loaddriver compare --at-once` tells a run of the other one."""
    command.add_argument("--of-two", type=_of_two, metavar="NUMBER:FD", help=argparse.SUPPRESS)


def _of_two(text: str) -> AtOnce:
    """The number of a run, and the descriptor of the lock that its parent holds."""
    number, _, descriptor = text.partition(":")
    return AtOnce(int(number), int(descriptor), os.getppid())


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
    config, components = flags.scheduler_config, dict(map(component_at, flags.component))
    bigfleet = components.pop(BIGFLEET, None)
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
        components=components,
        bigfleet=bigfleet,
        load_listen=flags.load_listen or "",
        at_once=flags.of_two,
    )
