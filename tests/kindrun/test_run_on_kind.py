"""A run on kind, on a machine of scripts: kind, engine and helm only note what they are asked."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

import kind.cluster
from kind.engine import Engine
from kind.host_settings import shared_host_lock
from kind.images.builder import Image
from kind.nodeimage.node import NodeImage
from kind.setup import Setup, Tools
from loaddriver.errors import ExitCode, ProfileError
from loaddriver.kindrun import run as kindrun
from loaddriver.kindrun import runner
from loaddriver.kindrun.prerequisites import Prerequisites, image_names
from loaddriver.kindrun.run import RunnerFailed, release_values, run_on_kind
from loaddriver.profile.loading import PROFILES, load_profile
from loaddriver.report.results import write_results
from loaddriver.run.arms import RunOutcome
from loaddriver.run.context import RunOptions
from loaddriver.run.folder import LATEST
from loaddriver.substrates.base import SubstrateError
from loaddriver.substrates.choice import SubstrateName
from tests.kind.kind_rig import Machine
from tests.run.run_rig import summary

OF_RUNNER = "smoke-20261126-120000"
KIND = """\
PATH=/usr/bin:/bin
case "$1 $2" in
  "create cluster") touch "{root}/cluster"; [ ! -e "{root}/fails" ] || exit 1 ;;
  "delete cluster") rm -f "{root}/cluster" ;;
esac
"""
# The runner is there at once, and has ended when its log was read.
PODMAN = """\
PATH=/usr/bin:/bin
case "$*" in
  *" get nodes "*) echo 2 ;;
  *" get pods "*) cat "{root}/pods.json" ;;
  *" logs "*) printf 'ramp\\nsoak\\n'; {logs}; cp "{root}/ended.json" "{root}/pods.json" ;;
  *" apply "*) cat > "{root}/applied.json" ;;
  "cp "*) for target; do :; done; cp -r "{root}/written/." "$target" ;;
esac
"""


def pods(**state: Any) -> str:
    status = {"name": "runner", "containerID": "containerd://1", "state": state}
    pod = {"metadata": {"name": "run-runner-x"}, "status": {"containerStatuses": [status]}}
    return json.dumps({"items": [pod]})


class Run:
    """A run with these scripts; `said` is what the user saw."""

    def __init__(self, machine: Machine, run_id: str) -> None:
        self.machine, self.run_id = machine, run_id
        self.said: list[str] = []
        self.options = RunOptions(
            "smoke", PROFILES, machine.root / "results", {}, SubstrateName.KIND
        )
        self.runner_ends(0)
        self.logs_do("true")
        machine.has("kind", KIND.format(root=machine.root))
        machine.has("helm")

    def runner_ends(self, code: int, *, with_results: bool = True) -> None:
        root = self.machine.root
        (root / "pods.json").write_text(pods(running={}))
        (root / "ended.json").write_text(pods(terminated={"exitCode": code}))
        folder = root / "written" / OF_RUNNER
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        if with_results:
            write_results(folder, summary("pass" if code == 0 else "fail", code), [])

    def logs_do(self, command: str) -> None:
        self.machine.has("podman", PODMAN.format(root=self.machine.root, logs=command))

    def play(self) -> RunOutcome:
        root = self.machine.root
        engine = Engine("podman", root / "bin" / "podman", self.machine.environment)
        node = NodeImage("kindest/node:v1", air_gapped=False, versions={})
        setup = Setup(Tools(engine, root / "bin" / "kind", root / "cache"), node)
        profile = load_profile("smoke", PROFILES)
        names = image_names(profile.settings)
        images = {name: Image(f"localhost/{name}:1", root / f"{name}.tar") for name in names}
        values = release_values(self.options, profile)
        prerequisites = Prerequisites(setup, images, root / "bin" / "helm")
        return run_on_kind(self.options, values, prerequisites, self.said.append)

    def asked(self, beginning: str) -> list[str]:
        return [call for call in self.machine.calls if call.startswith(beginning)]

    def leftovers(self) -> list[str]:
        """Data of the run, and its cluster."""
        shared = [p for root in ("/dev/shm", "/tmp") for p in Path(root).glob(f"*{self.run_id}*")]
        cluster = self.machine.root / "cluster"
        return [str(path) for path in (*shared, cluster) if path.exists()]


@pytest.fixture
def played(tmp_path: Path, run_id: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    def named(results: Path, _profile: str) -> Path:
        (results / run_id / "logs").mkdir(parents=True)
        return results / run_id

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # a machine lock of its own
    monkeypatch.setattr(kindrun, "create", named)
    monkeypatch.setattr(runner, "_POLL_SECONDS", 0.01)
    on_host = partial(shared_host_lock, root=tmp_path / "host")
    monkeypatch.setattr(kind.cluster, "shared_host_lock", on_host)
    return Run(Machine(tmp_path), run_id)


@pytest.mark.parametrize("code", [ExitCode.PASS, ExitCode.GATE_MISSED, ExitCode.INVALID_RUN])
def test_the_runners_verdict_words_and_results_are_the_runs(played: Run, code: ExitCode) -> None:
    played.runner_ends(code)
    outcome = played.play()
    assert outcome.exit_code is code
    assert outcome.folder == played.options.results / OF_RUNNER
    assert [line for line in played.said if line in ("ramp", "soak")] == ["ramp", "soak"]
    assert (played.options.results / LATEST).resolve() == outcome.folder.resolve()
    assert (outcome.folder / "logs" / "kind" / "kind.log").exists()
    assert {path.name for path in played.options.results.iterdir()} == {OF_RUNNER, LATEST}
    assert played.leftovers() == []


def test_the_release_has_the_profiles_values_images_and_volumes(played: Run) -> None:
    played.options = replace(played.options, seed=7, overrides=("soak.seconds=3",))
    folder = played.play().folder
    [install] = played.asked("helm install")
    assert "/charts/scaletest --namespace=scaletest --kubeconfig=" in install
    logs = folder / "logs" / "kind"
    profile, of_kind = (
        yaml.safe_load((logs / f"{name}-values.yaml").read_text()) for name in ("profile", "kind")
    )
    assert (profile["seed"], profile["overrides"]) == (7, ["soak.seconds=3"])
    assert of_kind["global"]["loaddriver"] == {"repository": "localhost/loaddriver", "tag": "1"}
    assert len(played.asked("kind load image-archive")) == 3
    applied = json.loads((played.machine.root / "applied.json").read_text())["items"]
    assert [each["kind"] for each in applied] == ["Namespace", *["PersistentVolume"] * 5]
    [made] = [call for call in played.asked("podman exec") if " mkdir " in call]
    assert all(each["spec"]["hostPath"]["path"] in made for each in applied[1:])


def test_an_interrupted_run_is_judged_as_far_as_it_came_and_leaves_nothing(played: Run) -> None:
    """The runner is asked to end, and its report fetched; here SIGTERM, as from `make down`."""
    played.logs_do("kill -TERM $PPID; sleep 5")
    with pytest.raises(KeyboardInterrupt):
        played.play()
    [asked] = [call for call in played.asked("podman exec") if " delete job " in call]
    assert "--cascade=foreground" in asked
    assert (played.options.results / OF_RUNNER / "summary.json").exists()
    assert played.leftovers() == []


def test_a_cluster_that_cannot_be_made_is_explained_and_removed(played: Run) -> None:
    (played.machine.root / "fails").touch()
    with pytest.raises(SubstrateError, match="creating the kind cluster test-"):
        played.play()
    assert played.asked("kind export logs")
    assert (played.options.results / played.run_id / "logs" / "diagnostics" / "pods.json").exists()
    assert not played.asked("helm")
    assert played.leftovers() == []


def test_a_release_that_cannot_be_installed_is_explained_and_removed(played: Run) -> None:
    played.machine.has("helm", "echo no such key >&2; exit 1")
    with pytest.raises(SubstrateError, match="no such key"):
        played.play()
    assert played.leftovers() == []


def test_a_runner_that_cannot_start_is_explained(played: Run) -> None:
    """Nobody waits for a deadline when the reason is known."""
    waiting = {"reason": "ErrImagePull", "message": "not found"}
    (played.machine.root / "pods.json").write_text(pods(waiting=waiting))
    with pytest.raises(SubstrateError, match="cannot start: ErrImagePull: not found"):
        played.play()
    assert played.leftovers() == []


def test_a_runner_whose_pod_is_gone_ends_the_run(played: Run) -> None:
    (played.machine.root / "ended.json").write_text('{"items": []}')
    with pytest.raises(SubstrateError, match="pod is gone"):
        played.play()


@pytest.mark.parametrize(("code", "with_results"), [(2, False), (1, True), (77, False)])
def test_without_a_verdict_the_exit_code_is_the_runners(
    played: Run, code: int, with_results: bool
) -> None:
    """Also if what it wrote says otherwise; one that is none of ours is a bug."""
    played.runner_ends(0, with_results=with_results)
    (played.machine.root / "ended.json").write_text(pods(terminated={"exitCode": code}))
    with pytest.raises(RunnerFailed, match=f"exit code {code}") as failed:
        played.play()
    assert failed.value.exit_code == (code if code in set(ExitCode) else ExitCode.HARNESS_BUG)
    assert played.leftovers() == []


def test_a_runner_that_failed_for_its_infrastructure_is_explained(played: Run) -> None:
    played.runner_ends(ExitCode.INFRASTRUCTURE)
    folder = played.play().folder
    assert (folder / "logs" / "kind" / "diagnostics" / "events.json").exists()
    assert played.asked("kind export logs")


@pytest.mark.parametrize(
    "given",
    [
        {"profiles": Path("elsewhere")},
        {"bare": True},
        {"scheduler_config": Path("scheduler.yaml")},
        {"components": {"etcd": Path("etcd")}},
    ],
    ids=lambda given: next(iter(given)),
)
def test_what_only_processes_of_this_machine_can_have_is_refused(given: dict[str, Any]) -> None:
    options = RunOptions("smoke", PROFILES, Path("results"), {}, SubstrateName.KIND)
    [key] = given
    flag = key.rstrip("s").replace("_", "-")
    with pytest.raises(ProfileError, match=f"^--{flag}.*use --substrate local"):
        release_values(replace(options, **given), load_profile("smoke", PROFILES))


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("system=command", "system: command"),
        ("anchors=both", "anchors: both"),
    ],
)
def test_a_setting_that_no_release_can_have_is_refused_by_name(setting: str, named: str) -> None:
    """Before images are built."""
    options = RunOptions("smoke", PROFILES, Path("results"), {}, SubstrateName.KIND)
    with pytest.raises(ProfileError, match=f"charts/scaletest cannot have {named}"):
        release_values(options, load_profile("smoke", PROFILES, (setting,)))


def test_a_profile_with_coordinators_has_as_many_in_the_release() -> None:
    options = RunOptions("shards-8", PROFILES, Path("results"), {}, SubstrateName.KIND)
    values = release_values(options, load_profile("shards-8", PROFILES))
    assert values["bigfleet"]["coordinator"] == {"replicas": 3}
