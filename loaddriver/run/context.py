"""The options of a run, from the command line, and what its arms share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from loaddriver.run.live_view import View
from loaddriver.run.system import SystemUnderTest
from loaddriver.substrates.choice import Prerequisites, SubstrateName
from loaddriver.substrates.existing.contexts import in_pod
from loaddriver.substrates.runlock import RunLock

# The variables that child processes inherit; others could make runs differ unnoticed.
_INHERITED = ("PATH", "HOME", "LANG", "TMPDIR")
# An image has Python's packages in a folder of its own.
_OF_IMAGES = ("PYTHONPATH",)


@dataclass(frozen=True)
class AtOnce:
    """A run that is one of two which a comparison plays at the same time.

    `number` keeps their ids apart. `lock` is the descriptor of the machine's lock, which process
    `session` holds for both.
    """

    number: int
    lock: int
    session: int


@dataclass(frozen=True)
class RunOptions:
    """The options of a run.

    `overrides` are `dotted.key=yaml value`. `keep` leaves the clusters up after the verdict. `bare`
    adds a baseline run: the same plan without BigFleet, judged as a pair. `environment` is this
    process's own, used to find binaries and as the base of child environments. `system` is the
    checkout that BigFleet's processes come from, None for the harness's own; `scheduler_config`
    is kube-scheduler's configuration, None for its defaults. `contexts` are those of the existing
    clusters to run in; `components` are binaries by name, in place of the pinned ones, and
    `bigfleet` is a program in place of that checkout's `bigfleet`. `load_listen` is where workers
    of the load join from other hosts, HOST:PORT; if it is empty they are started here. `at_once` is
    None for a run that has the machine alone.
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
    system: SystemUnderTest | None = None
    scheduler_config: Path | None = None
    contexts: tuple[str, ...] = ()
    components: Mapping[str, Path] = field(default_factory=dict)
    bigfleet: Path | None = None
    load_listen: str = ""
    at_once: AtOnce | None = None

    @property
    def in_pod(self) -> bool:
        """Whether a release of charts/scaletest is this run."""
        own = self.substrate is SubstrateName.EXISTING and in_pod(self.environment)
        return own or self.substrate is SubstrateName.PODS

    @property
    def bigfleet_command(self) -> tuple[str, ...]:
        """The command line of `bigfleet`; empty for the harness's own."""
        if self.bigfleet is not None:
            return (str(self.bigfleet),)
        return self.system.command if self.system else ()

    def child_environment(self) -> dict[str, str]:
        """The environment variables of child processes."""
        names = (*_INHERITED, *(_OF_IMAGES if self.in_pod else ()))
        inherited = {k: v for k, v in self.environment.items() if k in names}
        # One thread each: on few cores, idle thread pools only take CPU from the rest.
        return {**inherited, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class RunContext:
    """What all arms of a run share. `lock` is the machine-wide lock, held by the run."""

    options: RunOptions
    prerequisites: Prerequisites
    lock: RunLock
    view: View
