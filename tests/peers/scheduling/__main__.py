"""Karpenter's scheduler and BigFleet's engine choose machines for the same pods (make peers).

Karpenter's time is that of Solve, after its topology has been built, as in its own benchmark.
BigFleet's is from pods to a decision, of which the decision is given apart. Both use the two cores
of the machine as they like. BigFleet decides with its defaults, which buy for a tenth more pods,
and without that reserve.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bigfleet.engine.precompile import precompile
from bigfleet.engine.snapshot import EngineConfig
from controlplane.compiler import find_compiler
from controlplane.errors import BinaryError
from controlplane.platforms import platform_named
from tests.peers.scheduling.decided import decide_for, faults
from tests.peers.scheduling.workload import make_pods

_HEADER = "pods", "system", "seconds", "decision", "pods/s", "machines", "dollars/h", "unplaced"
_COLUMNS = "{:>6} {:<20} {:>8} {:>9} {:>7} {:>9} {:>10} {:>9}"
_SYSTEMS = {"BigFleet": EngineConfig(), "BigFleet, no reserve": EngineConfig(growth=0.0)}


class Solved(NamedTuple):
    """What a system took, in seconds, and chose; `decision_seconds` is BigFleet's."""

    seconds: float
    machines: float
    dollars_per_hour: float
    unplaced: float
    decision_seconds: float = math.nan


def main() -> int:
    """Print a line for each system and number of pods; 1 when BigFleet places a pod wrongly."""
    parser = argparse.ArgumentParser(prog="make peers", description=__doc__)
    parser.add_argument("pods", type=int, nargs="*", default=[500, 1000, 5000])
    parser.add_argument("--rounds", type=int, default=3, help="with other pods each")
    arguments = parser.parse_args()
    precompile()
    wrong = list[str]()
    with tempfile.TemporaryDirectory() as folder:
        scheduler = build(Path(folder))
        print(_COLUMNS.format(*_HEADER))
        for count in arguments.pods:
            for line in _lines(scheduler, count, arguments.rounds, wrong):
                print(line, flush=True)
    if wrong:
        print(*wrong, sep="\n", file=sys.stderr)
    return 1 if wrong else 0


def build(folder: Path) -> Path:
    """Build Karpenter's scheduler with our `main.go`: two minutes at first."""
    compiler = find_compiler(
        os.environ, platform_named(platform.system(), platform.machine()), "Karpenter's scheduler"
    )
    binary = folder / "scheduling"
    command = [compiler.path, "build", "-o", str(binary), "."]
    built = subprocess.run(
        command,
        cwd=Path(__file__).parent,
        env=dict(compiler.environment),
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode:
        raise BinaryError(f"Karpenter's scheduler cannot be built: {built.stderr.strip()}")
    return binary


def _karpenter(scheduler: Path, pods: Sequence[Mapping[str, Any]]) -> Solved:
    answer = subprocess.run(
        [scheduler], input=json.dumps(pods), capture_output=True, text=True, check=True
    )
    found = json.loads(answer.stdout)
    return Solved(found["seconds"], found["machines"], found["dollarsPerHour"], found["unplaced"])


def _bigfleet(
    pods: Sequence[Mapping[str, Any]], settings: EngineConfig, wrong: list[str]
) -> Solved:
    ours = decide_for(pods, settings)
    found = faults(ours.fleet, ours.demand, ours.placements)
    wrong += [f"{len(pods)} pods: {fault}" for fault in found]
    seconds = ours.roll_up_seconds + ours.reading_seconds + ours.decision_seconds
    chosen = ours.machines, ours.dollars_per_hour, ours.unplaced
    return Solved(seconds, *chosen, ours.decision_seconds)


def _lines(scheduler: Path, count: int, rounds: int, wrong: list[str]) -> Iterator[str]:
    """The means of each system, which take turns."""
    found: dict[str, list[Solved]] = {}
    for seed in range(rounds):
        pods = make_pods(count, seed)
        found.setdefault("Karpenter", []).append(_karpenter(scheduler, pods))
        for name, settings in _SYSTEMS.items():
            found.setdefault(name, []).append(_bigfleet(pods, settings, wrong))
    for name, solved in found.items():
        mean = Solved(*(statistics.fmean(column) for column in zip(*solved, strict=True)))
        yield _COLUMNS.format(
            count,
            name,
            f"{mean.seconds:.3f}",
            "" if math.isnan(mean.decision_seconds) else f"{mean.decision_seconds:.3f}",
            f"{count / mean.seconds:.0f}",
            f"{mean.machines:.0f}",
            f"{mean.dollars_per_hour:.2f}",
            f"{mean.unplaced:.0f}",
        )


if __name__ == "__main__":
    sys.exit(main())
