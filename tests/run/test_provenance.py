"""Two results that came from different code, inputs, binaries or machines can be told apart."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from controlplane.pins import COMPONENTS
from controlplane.request import Binaries
from loaddriver.errors import InfrastructureError
from loaddriver.plan.make import make_plan
from loaddriver.profile.loading import Profile
from loaddriver.report.manifest import digest_of_file
from loaddriver.run import provenance
from loaddriver.run.arms import check_same_binaries
from loaddriver.run.host import read_host
from loaddriver.run.inputs import RunInputs
from loaddriver.run.provenance import calibrate, digest_of_tree, read_provenance, revision_of
from loaddriver.run.running_provider import ListedFleet
from loaddriver.sizing.shared_demand import compute_demand
from tests.run.run_rig import machines, smoke, summary

DIGEST = re.compile("[0-9a-f]{64}")


@pytest.fixture
def binaries(tmp_path: Path) -> Binaries:
    """Small files in place of the binaries."""
    paths = {name.replace("-", "_"): tmp_path / name for name in COMPONENTS}
    for path in paths.values():
        path.write_text(path.name)
    return Binaries(**paths, versions={}, origin={})


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one commit."""
    root = tmp_path / "repository"
    root.mkdir()
    (root / "code.py").write_text("1\n")
    who = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "first"]):
        subprocess.run(["git", "-C", str(root), *command], check=True)
    return root


def inputs_of(profile: Profile) -> RunInputs:
    plan = make_plan(profile)
    demand = compute_demand(plan, profile.catalog)
    return RunInputs(profile, plan, demand, machines(profile), read_host(Path()))


def test_a_bare_run_needs_the_versions_and_builds_of_its_pair(binaries: Binaries) -> None:
    """Two builds of one version have the same name, and may differ as two versions do."""
    versioned = replace(binaries, versions={"kube-scheduler": "1.36.3"})
    made = read_provenance(inputs_of(smoke()), versioned)
    run = msgspec.structs.replace(summary(versions=versioned.versions), provenance=made)
    check_same_binaries(run, versioned)
    with pytest.raises(InfrastructureError, match=r"kube-scheduler 1\.36\.3, this machine has"):
        check_same_binaries(run, replace(binaries, versions={"kube-scheduler": "1.35.4"}))
    binaries.kube_scheduler.write_text("built once more")
    with pytest.raises(InfrastructureError, match="another build of kube-scheduler; name it"):
        check_same_binaries(run, versioned)


def test_a_program_in_bigfleets_place_is_a_change_of_the_checkout(
    binaries: Binaries, checkout: Path
) -> None:
    """Its runs are no baseline of that revision, and two builds of it are told apart."""
    program = checkout.parent / "bigfleet"
    given = inputs_of(smoke())
    plain = read_provenance(given, binaries, checkout)
    found = []
    for content in ("one", "other"):
        program.write_text(content)
        found.append(read_provenance(given, binaries, checkout, program))
    assert (plain.dirty, [each.dirty for each in found]) == (False, [True, True])
    assert len({each.code.get("bigfleet") for each in (plain, *found)}) == 3


def test_a_checkout_has_its_commit_and_a_mark_for_changes(checkout: Path) -> None:
    """Files that nobody added yet are changes, too."""
    commit, dirty = revision_of(checkout)
    assert re.fullmatch("[0-9a-f]{40}", commit)
    assert dirty is False
    (checkout / "new.py").write_text("2\n")
    assert revision_of(checkout) == (commit, True)


def test_code_that_is_no_checkout_has_no_revision(tmp_path: Path) -> None:
    """Its digest remains."""
    assert revision_of(tmp_path) == ("", None)


def test_a_digest_of_code_follows_names_and_contents_but_not_compiled_files(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("xy")
    (tmp_path / "b.py").write_text("z")
    first = digest_of_tree(tmp_path)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_text("compiled")
    assert digest_of_tree(tmp_path) == first
    (tmp_path / "a.py").write_text("x")
    (tmp_path / "b.py").write_text("yz")
    assert digest_of_tree(tmp_path) != first


def test_every_input_has_a_digest_that_only_its_own_change_changes(binaries: Binaries) -> None:
    one = read_provenance(inputs_of(smoke()), binaries)
    other = read_provenance(inputs_of(smoke("soak.seconds=7")), binaries)
    assert set(one.inputs) == {"plan", "profile", "gates", "catalog"}
    assert set(one.code) == {"bigfleet", "loaddriver", "controlplane"}
    digests = [*one.inputs.values(), *one.code.values(), one.dependencies, *one.binaries.values()]
    assert all(DIGEST.fullmatch(digest) for digest in digests)
    assert one.inputs["profile"] != other.inputs["profile"]
    for same in ("gates", "catalog"):
        assert one.inputs[same] == other.inputs[same]
    assert (one.code, one.dependencies) == (other.code, other.dependencies)


def test_runs_of_two_systems_share_their_inputs(binaries: Binaries) -> None:
    """So that `loaddriver compare` takes them: the system is what is compared."""
    found = [
        read_provenance(inputs_of(smoke(*overrides)), binaries).inputs
        for overrides in ((), ("system=none",), ("system=command", "command.start=mine"))
    ]
    assert found[0] == found[1] == found[2]


def test_runs_with_a_provider_of_ones_own_have_its_machines_as_an_input(binaries: Binaries) -> None:
    """A history must not hold them against runs with the harness's provider."""
    own = inputs_of(smoke())
    one, other = (
        read_provenance(replace(own, provider=ListedFleet("h:1", "shop", fleet, None)), binaries)
        for fleet in (own.machines, own.machines[1:])
    )
    assert one.inputs.items() - other.inputs.items() == {("machines", one.inputs["machines"])}
    assert one.provider is not None
    assert (one.provider.address, one.provider.name) == ("h:1", "shop")
    assert not one.provider.cpu_measured
    assert read_provenance(own, binaries).provider is None


def test_binaries_are_known_by_content(binaries: Binaries) -> None:
    """A patched kube-apiserver of the same version is another one."""
    found = read_provenance(inputs_of(smoke()), binaries).binaries
    assert list(found) == list(COMPONENTS)
    assert found["etcd"] == digest_of_file(binaries.etcd)


def test_a_machine_keeps_its_id_and_another_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, binaries: Binaries
) -> None:
    """Also where it has no id of its own, as in some containers."""

    def machine_id() -> str:
        return read_provenance(inputs_of(smoke()), binaries).machine.id

    own = tmp_path / "machine-id"
    monkeypatch.setattr(provenance, "_MACHINE_ID", own)
    without = machine_id()
    own.write_text("abc\n")
    first = machine_id()
    assert first == machine_id()
    assert len({without, first}) == 2
    assert "abc" not in first


def test_calibration_is_the_cpu_time_of_a_fixed_task() -> None:
    """Hundredths of a second; how far it repeats depends on what else runs."""
    assert 0.002 < calibrate() < 2
