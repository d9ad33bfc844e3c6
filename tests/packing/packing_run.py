"""Plays a profile's ramp on the machines that the lower bound names, without BigFleet.

    python -m tests.packing.packing_run PROFILE [--seed N] [--more 1.05]

It shows whether the real kube-scheduler binds every pod on them. The linear program may cut pods,
and racks are not part of it; `--more` adds machines of the kinds that it chose.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from loaddriver.commands.common import get_prerequisites
from loaddriver.judge.schema import Summary
from loaddriver.plan.make import make_plan
from loaddriver.plan.manifests import ZONE_KEY
from loaddriver.plan.records import RAMP
from loaddriver.profile.loading import load_profile
from loaddriver.run.arm_runner import measure
from loaddriver.run.context import RunContext, RunOptions
from loaddriver.run.folder import create
from loaddriver.run.inputs import Arm, RunInputs
from loaddriver.run.live_view import view_on
from loaddriver.run.paired_run import ServedNode
from loaddriver.sizing.fit import Offering, group_offerings, offering_of, pod_requirements
from loaddriver.sizing.inventory import InventoryMachine
from loaddriver.substrates.runlock import machine_claimed
from tests.packing.packing_lp import Program, classes_of, inputs_of, zones_in_use

PROFILES = Path(__file__).parents[2] / "profiles"
# The ramp, and then a little time to bind the last.
ONLY_THE_RAMP = (
    "demandSteps=[]",
    "bursts=[]",
    "ramp.pacing=fixed",
    "soak.seconds=20",
    "soak.churnPodsPerSecond=0",
)
_SECONDS = 60.0
_SOME = 1e-3


def nodes_of(inputs: RunInputs, more: float) -> list[ServedNode]:
    """Machines that hold the ramp's pods, by cluster, and `more` times as many of each kind."""
    catalog, names = inputs.profile.catalog, inputs.cluster_names
    workloads = [each for each in inputs.plan.workloads if each.origin == RAMP]
    needs = [pod_requirements(catalog.archetype(each.archetype), each.size) for each in workloads]
    zones = zones_in_use(needs, sorted({machine.zone for machine in inputs.machines}))
    offerings = group_offerings(needs, inputs.machines, catalog.daemon_sets, extra_keys=[ZONE_KEY])
    kinds = list(offerings)
    classes = classes_of(workloads, catalog, zones)
    dollars = np.array([kind.dollars_per_hour for kind in kinds])
    _, parts = Program(classes, kinds, [offerings[kind] for kind in kinds], zones).solved(dollars)
    # Whole numbers are looked for only among the kinds of which it takes some part.
    used = np.flatnonzero(parts.sum(axis=0) > _SOME)
    kinds = [kinds[at] for at in used]
    program = Program(classes, kinds, [offerings[kind] for kind in kinds], zones)
    return list(_taken(inputs, kinds, names, program.whole(dollars[used], _SECONDS) * more))


def _taken(
    inputs: RunInputs, kinds: list[Offering], names: list[str], chosen: np.ndarray
) -> Iterator[ServedNode]:
    wanted: Counter[tuple[int, Offering]] = Counter()
    for cluster, row in enumerate(chosen):
        # Rounded along the sum, so that each fraction does not become a machine of its own.
        upto = np.ceil(np.cumsum(row) - 1e-9).astype(int)
        for kind, count in zip(kinds, np.diff(upto, prepend=0), strict=True):
            wanted[cluster, kind] = int(count)
    keys = {key for kind in kinds for key, _ in kind.labels}
    for machine in inputs.machines:
        kind = _kind(machine, inputs, keys)
        for cluster, name in enumerate(names):
            if wanted[cluster, kind]:
                wanted[cluster, kind] -= 1
                yield ServedNode(cluster=name, machine=machine)
                break


def _kind(machine: InventoryMachine, inputs: RunInputs, keys: set[str]) -> Offering:
    whole = offering_of(machine, inputs.profile.catalog.daemon_sets)
    labels = tuple((key, value) for key, value in whole.labels if key in keys)
    return Offering(whole.available, labels, whole.taints, whole.dollars_per_hour)


def play(name: str, seed: int | None, more: float) -> Summary:
    """The run's summary; its folder is left among the results."""
    profile = load_profile(name, PROFILES, ONLY_THE_RAMP, seed)
    inputs = inputs_of(profile, make_plan(profile))
    nodes = nodes_of(inputs, more)
    dollars = sum(node.machine.price_per_hour for node in nodes)
    print(f"{len(nodes)} nodes, ${dollars:.2f} an hour")
    options = RunOptions(name, PROFILES, Path("results"), dict(os.environ))
    prerequisites = get_prerequisites(options)
    with machine_claimed(name) as lock, view_on(sys.stderr) as view:
        folder = create(options.results, name)
        arm = Arm(inputs, folder, folder.name, tuple(nodes), bare_of="the lower bound")
        summary, _ = asyncio.run(measure(RunContext(options, prerequisites, lock, view), arm))
    return summary


def _main() -> None:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("profile")
    flags.add_argument("--seed", type=int)
    flags.add_argument("--more", type=float, default=1.0)
    asked = flags.parse_args()
    summary = play(asked.profile, asked.seed, asked.more)
    print(f"{summary.pods.bound} of {summary.pods.created} pods bound; {summary.verdict}")
    print("\n".join(summary.diagnosis))


if __name__ == "__main__":
    _main()
