"""Selects where the Nodes of an arm come from: the system under test."""

from __future__ import annotations

from pathlib import Path

from controlplane.pins import KARPENTER
from controlplane.request import Binaries
from loaddriver.karpenter.node_source import KarpenterNodeSource
from loaddriver.run.command_system import CommandNodeSource
from loaddriver.run.context import RunOptions
from loaddriver.run.inputs import Arm
from loaddriver.run.node_source import (
    FleetNodeSource,
    NodeSource,
    PresentNodeSource,
    StaticNodeSource,
)
from loaddriver.run.static_fleet import fleet_nodes
from loaddriver.substrates.choice import Prerequisites, SubstrateName
from loaddriver.substrates.existing.substrate import Prerequisites as ExistingPrerequisites
from loaddriver.substrates.pods.places import Prerequisites as PodsPrerequisites
from loaddriver.substrates.processes import Supervisor


def make_node_source(
    prerequisites: Prerequisites,
    options: RunOptions,
    arm: Arm,
    scratch: Path,
    supervisor: Supervisor,
) -> NodeSource:
    """The source of the arm's Nodes, not started yet; `scratch` is deleted with the run.

    What is not a role of the substrate becomes a child of `supervisor`.
    """
    if arm.bare_of:
        return StaticNodeSource(arm.nodes)
    settings, machines = arm.inputs.profile.settings, arm.inputs.machines
    match settings.system:
        case "none" if settings.none.nodes == "existing":
            return PresentNodeSource()
        case "none":
            nodes = fleet_nodes(machines, arm.inputs.cluster_names)
            return StaticNodeSource(nodes, apart=options.substrate is SubstrateName.EXISTING)
        case "command":
            logs, environment = arm.folder / "logs", options.environment
            return CommandNodeSource(
                settings.command, machines, supervisor, environment, scratch, logs
            )
        case "karpenter":
            return KarpenterNodeSource(settings, machines, _karpenter(prerequisites), scratch)
        case "bigfleet":
            return FleetNodeSource(arm.inputs, scratch)


def _karpenter(prerequisites: Prerequisites) -> Path | None:
    """Its binary, which was asked for when they were obtained; None if it runs in pods."""
    if isinstance(prerequisites, PodsPrerequisites):
        return None
    if isinstance(prerequisites, ExistingPrerequisites):
        return prerequisites.programs[KARPENTER].path
    assert isinstance(prerequisites, Binaries)
    assert prerequisites.karpenter is not None
    return prerequisites.karpenter
