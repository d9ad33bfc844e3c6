"""What the command line asks of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from loaddriver.substrates.choice import SubstrateName

# What child processes inherit; anything else could make two runs differ unseen.
_INHERITED = ("PATH", "HOME", "LANG", "TMPDIR")


@dataclass(frozen=True)
class RunOptions:
    """`overrides` are `dotted.key=yaml value`; `keep` leaves the clusters up after the verdict;
    `bare` plays the plan once more without BigFleet, and judges the two as a pair.

    `environment` is the runner's own, from which the search for binaries and the children take
    what they need.
    """

    profile: str
    profiles: Path
    results: Path
    environment: Mapping[str, str]
    substrate: SubstrateName = SubstrateName.LOCAL
    seed: int | None = None
    overrides: tuple[str, ...] = ()
    kubernetes_version: str | None = None
    binaries: str | None = None
    keep: bool = False
    bare: bool = False

    def child_environment(self) -> dict[str, str]:
        """The variables that child processes get."""
        inherited = {k: v for k, v in self.environment.items() if k in _INHERITED}
        # One thread each: on few cores, idle pools of threads only take time from the rest.
        return {**inherited, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
