"""What a run saves so that a bare run can play the same plan on the same Nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bigfleet.model.errors import UNDECODABLE
from loaddriver.errors import ProfileError
from loaddriver.judge.schema import Summary
from loaddriver.plan.files import load_plan
from loaddriver.plan.records import Plan
from loaddriver.profile.loading import Profile
from loaddriver.record.nodes import node_lifetimes
from loaddriver.record.recorder import Observations
from loaddriver.report.results import read_summary
from loaddriver.sizing.inventory import InventoryMachine

PLAN, PROFILE, NODES = "plan.jsonl", "profile.json", "nodes.jsonl"
SCHEDULER_CONFIG = "scheduler-config.yaml"


class ServedNode(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A machine that was a ready Node of `cluster` at some time in the run."""

    cluster: str
    machine: InventoryMachine


@dataclass(frozen=True)
class PairedRun:
    """A finished run, with what its bare run needs; `scheduler_config` is None for the defaults."""

    folder: Path
    summary: Summary
    profile: Profile
    plan: Plan
    nodes: tuple[ServedNode, ...]
    scheduler_config: Path | None


def save_profile(profile: Profile, folder: Path) -> None:
    """Write the profile as played, including overrides from the command line."""
    (folder / PROFILE).write_bytes(msgspec.json.format(msgspec.json.encode(profile)))


def save_scheduler_config(config: Path | None, folder: Path) -> None:
    """Copy kube-scheduler's configuration, if one was given: the original may change."""
    if config is not None:
        (folder / SCHEDULER_CONFIG).write_bytes(config.read_bytes())


def save_nodes(
    observed: Sequence[Observations], machines: Iterable[InventoryMachine], folder: Path
) -> None:
    """Write every machine that became a ready Node, once per cluster that it served."""
    by_name = {machine.id: machine for machine in machines}
    nodes = [node for each in observed for node in _served(each, by_name)]
    (folder / NODES).write_bytes(msgspec.json.Encoder().encode_lines(nodes))


def read_paired_run(folder: Path) -> PairedRun:
    """Read the run in `folder`. Raises ProfileError if it cannot have a bare run."""
    summary = read_summary(folder)
    if summary.run.bare:
        raise ProfileError([f"{folder} is itself a bare run; name the run that it belongs to"])
    if summary.verdict in ("error", "invalid"):
        raise ProfileError(
            [f"{folder}: its verdict is {summary.verdict}, so it cannot be compared"]
        )
    try:
        profile = msgspec.json.decode((folder / PROFILE).read_bytes(), type=Profile)
        lines = (folder / NODES).read_bytes().splitlines()
        nodes = tuple(msgspec.json.decode(line, type=ServedNode) for line in lines)
        plan = load_plan(folder / PLAN)
    except OSError as error:
        raise ProfileError([f"{error.filename}: {error.strerror}; the run is incomplete"]) from None
    except UNDECODABLE as error:
        raise ProfileError([f"{folder}: written by another version: {error}"]) from None
    config = folder / SCHEDULER_CONFIG
    return PairedRun(
        folder, summary, profile, plan, nodes, config.resolve() if config.exists() else None
    )


def _served(observed: Observations, machines: dict[str, InventoryMachine]) -> Iterator[ServedNode]:
    for name, lifetimes in sorted(node_lifetimes(observed).items()):
        if name in machines and any(lifetime.ready_micros is not None for lifetime in lifetimes):
            yield ServedNode(cluster=observed.cluster, machine=machines[name])
