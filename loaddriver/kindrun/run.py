"""One run on kind, from its cluster to its verdict; the cluster is gone afterwards."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

import kind.cluster
from kind.command import run
from kind.config import cluster_config
from kind.errors import KindError
from loaddriver.errors import ExitCode, LoaddriverError, ProfileError
from loaddriver.kindrun import removal
from loaddriver.kindrun.node import Node
from loaddriver.kindrun.prerequisites import Prerequisites
from loaddriver.kindrun.runner import NAMESPACE, RELEASE, Runner
from loaddriver.kindrun.values import CHART, RESULTS, folders, kind_values, volumes
from loaddriver.profile.loading import PROFILES, Profile
from loaddriver.report.results import read_summary
from loaddriver.run.arms import RunOutcome
from loaddriver.run.chart_values import chart_values
from loaddriver.run.context import RunOptions
from loaddriver.run.folder import create, point_latest
from loaddriver.substrates.base import SubstrateError
from loaddriver.substrates.reaper.cleanup import RUN_VARIABLE
from loaddriver.substrates.runlock import machine_claimed
from loaddriver.substrates.runscope import RunScope

_STOPPING = (signal.SIGINT, signal.SIGTERM)
_HELM_SECONDS = 180.0
_FAILED = (ExitCode.HARNESS_BUG, ExitCode.INFRASTRUCTURE)
Say = Callable[[str], None]


class RunnerFailed(LoaddriverError):
    """The runner's exit code is no verdict on what it measured."""

    def __init__(self, code: int, folder: Path) -> None:
        self.exit_code = ExitCode(code) if code in set(ExitCode) else ExitCode.HARNESS_BUG
        super().__init__(f"the runner ended with exit code {code}; what is left of it: {folder}")


def release_values(options: RunOptions, profile: Profile) -> dict[str, Any]:
    """The values of charts/scaletest for the run. Raises ProfileError for what only processes of
    this machine can have.
    """
    given = {
        "--profiles": options.profiles.resolve() != PROFILES,
        "--bare": options.bare,
        "--sut": options.system,
        "--scheduler-config": options.scheduler_config,
        "--component": options.components,
    }
    if flags := [flag for flag, value in given.items() if value]:
        raise ProfileError(
            [f"{', '.join(flags)}: on kind all parts are from images; use --substrate local"]
        )
    return chart_values(profile, options.overrides, options.seed)


def run_on_kind(
    options: RunOptions, values: dict[str, Any], prerequisites: Prerequisites, say: Say
) -> RunOutcome:
    """Run to the verdict. Raises LoaddriverError without one, and KeyboardInterrupt, also for
    SIGTERM, once all is cleaned up.
    """
    with machine_claimed(options.profile) as lock, _signals(signal.default_int_handler):
        own = create(options.results, options.profile)
        scope = RunScope.within(lock, own.name, own / "logs")
        for sentence in scope.swept:
            say(sentence)
        played = _KindRun(values, prerequisites, scope, own, say)
        try:
            code = played.play()
            if options.keep:
                played.keep()
        finally:
            with _signals(signal.SIG_IGN):
                played.runner.end()
                fetched = played.fetch_results(options.results)
                say(asyncio.run(scope.close()))
                folder = _settled(own, fetched)
                say(f"results: {folder}")
    return _outcome(code, folder)


@contextmanager
def _signals(handler: Any) -> Iterator[None]:
    """What asks a run to stop is handled so, also in what a shell's `&` made ignore SIGINT."""
    before = {number: signal.signal(number, handler) for number in _STOPPING}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


@dataclass
class _KindRun:
    """A run; `own` is the folder of what this process writes, in place of the runner."""

    values: dict[str, Any]
    prerequisites: Prerequisites
    scope: RunScope
    own: Path
    say: Say
    runner: Runner = field(init=False)

    def __post_init__(self) -> None:
        setup = self.prerequisites.setup
        engine = setup.tools.engine
        # Marked, so that kind's own processes end with the run whatever ends it.
        marked = replace(engine, environment={**engine.environment, RUN_VARIABLE: self.own.name})
        self._setup = replace(setup, tools=replace(setup.tools, engine=marked))
        self._name = re.sub("[^a-z0-9.-]", "-", self.own.name.lower())
        self._node = Node(marked, f"{self._name}-control-plane")
        self.runner = Runner(self._node, self.say)

    def play(self) -> int:
        """The runner's exit code. Raises SubstrateError."""
        try:
            self._install(self._make_cluster())
            code = self.runner.follow()
        except (KindError, SubstrateError) as error:
            self._diagnose()
            raise SubstrateError(str(error)) from error
        if code in _FAILED:
            self._diagnose()
        return code

    def keep(self) -> None:
        """Leave everything up until interrupted."""
        kubectl = f"{self._setup.tools.engine.name} exec {self._node.name} kubectl -n {NAMESPACE}"
        self.say(f"still up: {kubectl} get pods")
        self.say("Ctrl-C or `make down` fetches the results and removes everything")
        with suppress(KeyboardInterrupt):
            signal.pause()

    def fetch_results(self, results: Path) -> Path | None:
        """Copy the folder that the runner wrote to the other results; None if it has none."""
        if not self.runner.started:
            return None
        copied = self.own / "copied"
        copied.mkdir()
        try:
            self._node.copy_out(folders(self.values)[RESULTS], copied)
        except KindError as error:
            self.say(f"the results cannot be fetched: {error}")
        for path in copied.iterdir():
            if path.is_dir() and not path.is_symlink():
                return Path(shutil.move(path, results / path.name))
        return None

    def _make_cluster(self) -> Path:
        """The cluster's kubeconfig, once it is ready and has all images."""
        tools = self._setup.tools
        kubeconfig = removal.announce(self.scope.data_directory, tools, self._name)
        self.say("creating a kind cluster")
        config = cluster_config(self._setup.node_image)
        log = self.own / "logs" / "kind.log"
        kind.cluster.create(self._setup, self._name, config, kubeconfig, log, self.say)
        self.say("loading images")
        for image in self.prerequisites.images.values():
            kind.cluster.load(tools, self._name, image.archive)
        return kubeconfig

    def _install(self, kubeconfig: Path) -> None:
        self.say(f"installing {CHART.parent.name}/{CHART.name}")
        self._node.make_folders(list(folders(self.values).values()))
        self._node.apply([_NAMESPACE, *volumes(self.values)])
        cores = "--output=jsonpath={.items[0].status.allocatable.cpu}"
        of_kind = kind_values(
            self.values,
            self.prerequisites.images,
            self._setup.node_image,
            float(self._node.kubectl("get", "nodes", cores)),
        )
        command = [str(self.prerequisites.helm), "install", RELEASE, str(CHART)]
        command += [f"--namespace={NAMESPACE}", f"--kubeconfig={kubeconfig}"]
        for name, values in (("profile", self.values), ("kind", of_kind)):
            file = self.own / "logs" / f"{name}-values.yaml"
            file.write_text(yaml.safe_dump(values, sort_keys=False))
            command.append(f"--values={file}")
        run(command, self._setup.tools.engine.environment, _HELM_SECONDS)

    def _diagnose(self) -> None:
        bundle = self.own / "logs" / "diagnostics"
        self._node.write_objects(bundle)
        with suppress(KindError):
            kind.cluster.export_logs(self._setup.tools, self._name, bundle / "node")


_NAMESPACE = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {
        "name": NAMESPACE,
        "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
    },
}


def _settled(own: Path, folder: Path | None) -> Path:
    """The run's folder: the runner's, with what this process wrote among its logs."""
    if folder is None:
        shutil.rmtree(own / "copied", ignore_errors=True)
        return own
    shutil.move(own / "logs", folder / "logs" / "kind")
    shutil.rmtree(own)
    point_latest(folder)
    return folder


def _outcome(code: int, folder: Path) -> RunOutcome:
    try:
        summary = read_summary(folder)
    except ProfileError:
        raise RunnerFailed(code, folder) from None
    if summary.exit_code != code:
        raise RunnerFailed(code, folder)
    return RunOutcome(summary, folder)
