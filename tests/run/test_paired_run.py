"""A bare run plays the same plan as its pair, on the same Nodes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bigfleet.adapters.host import bootstrap
from bigfleet.model import resources
from bigfleet.ports.host import Boot
from bigfleet.services.provider.inventory import read as read_inventory
from loaddriver.errors import ProfileError
from loaddriver.judge.applicability import applicable
from loaddriver.judge.schema import Summary
from loaddriver.plan.make import make_plan
from loaddriver.run.arms import bare_arm
from loaddriver.run.context import RunOptions
from loaddriver.run.inputs import prepare_inputs, with_anchors
from loaddriver.run.node_source import node_object
from loaddriver.run.paired_run import (
    NODES,
    ServedNode,
    read_paired_run,
    save_nodes,
    save_scheduler_config,
)
from loaddriver.sizing.inventory import InventoryTaint, save_inventory
from tests.run.run_rig import PROFILES, finished_run, machines, seen, smoke, summary

_OWN = "bigfleet.lucy.sh/"


def test_a_pair_has_the_profile_as_played_and_not_as_it_is_now(tmp_path: Path) -> None:
    profile = smoke("soak.seconds=7", "podsPerCluster=20")
    names = [machine.id for machine in machines(profile)[:3]]
    pair = read_paired_run(finished_run(tmp_path / "smoke-1", profile, summary(), names))
    assert pair.profile == profile
    assert pair.plan == make_plan(profile)
    assert [node.machine.id for node in pair.nodes] == sorted(names)


def test_every_machine_that_served_is_saved_once_per_cluster(tmp_path: Path) -> None:
    """Nodes that never became ready or are not of the fleet are left out."""
    fleet = machines(smoke())
    first, second, third = (machine.id for machine in fleet[:3])
    observed = [seen("c1", [second, first, "not-ours"], [third]), seen("c2", [first])]
    save_nodes(observed, fleet, tmp_path)
    lines = (tmp_path / NODES).read_text().splitlines()
    assert len(lines) == 3
    assert [first in line for line in lines].count(True) == 2


def test_a_bare_node_is_the_node_that_its_machine_registered(tmp_path: Path) -> None:
    """As the provider reads the seed file, without BigFleet's own labels."""
    slow = InventoryTaint(key="example.com/slow", effect="NoSchedule")
    seed = msgspec.structs.replace(machines(smoke())[0], taints=(slow,))
    save_inventory([seed], tmp_path / "inventory.jsonl")
    [machine] = read_inventory(tmp_path / "inventory.jsonl")
    blob = bootstrap.Blob(api_server="", ca_pem="", token="", node_name=seed.id)
    joined = bootstrap.node(Boot(machine, "operation-1", b""), blob, "fake")
    bare = node_object(ServedNode(cluster="c1", machine=seed))
    assert bare["metadata"]["name"] == joined["metadata"]["name"]
    known = joined["metadata"]["labels"].items()
    assert bare["metadata"]["labels"] == {k: v for k, v in known if _OWN not in k}
    assert bare["metadata"]["annotations"].items() <= joined["metadata"]["annotations"].items()
    [taint] = bare["spec"]["taints"]
    assert [{"value": "", **taint}] == joined["spec"]["taints"]
    for key in ("capacity", "allocatable"):
        theirs, ours = joined["status"][key], bare["status"][key]
        assert resources.parse_capacity(ours) == resources.parse_capacity(theirs)
    conditions = [
        [(c["type"], c["status"]) for c in n["status"]["conditions"]] for n in (joined, bare)
    ]
    assert conditions == [[("Ready", "False")]] * 2


def test_a_bare_node_keeps_the_taints_of_its_machine() -> None:
    """Otherwise pods would run where they could not with BigFleet."""
    spot = InventoryTaint(key="spot", value="true", effect="NoSchedule")
    seed = msgspec.structs.replace(machines(smoke())[0], taints=(spot,))
    bare = node_object(ServedNode(cluster="c1", machine=seed))
    [taint] = bare["spec"]["taints"]
    assert taint == {"key": "spot", "value": "true", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("of", "message"),
    [
        (summary(bare=True, bare_of="other"), "is itself a bare run"),
        (summary("error", 6), "its verdict is error"),
        (summary("invalid", 5), "its verdict is invalid"),
    ],
)
def test_a_run_without_a_valid_verdict_cannot_be_paired(
    tmp_path: Path, of: Summary, message: str
) -> None:
    folder = finished_run(tmp_path / "smoke-1", smoke(), of, [])
    with pytest.raises(ProfileError, match=message):
        read_paired_run(folder)


def test_a_folder_without_its_plan_is_rejected_with_the_path(tmp_path: Path) -> None:
    folder = finished_run(tmp_path / "smoke-1", smoke(), summary(), [])
    (folder / "plan.jsonl").unlink()
    with pytest.raises(ProfileError, match=r"plan\.jsonl: No such file"):
        read_paired_run(folder)


def test_a_pair_has_the_scheduler_configuration_as_it_was(tmp_path: Path) -> None:
    folder = finished_run(tmp_path / "smoke-1", smoke(), summary(), [])
    assert read_paired_run(folder).scheduler_config is None, "kube-scheduler's defaults"
    given = tmp_path / "most.yaml"
    given.write_text("kind: KubeSchedulerConfiguration")
    save_scheduler_config(given, folder)
    given.write_text("changed since")
    kept = read_paired_run(folder).scheduler_config
    assert kept is not None
    assert kept.read_text() == "kind: KubeSchedulerConfiguration"


def test_a_bare_arm_has_only_gates_that_do_not_depend_on_bigfleet(tmp_path: Path) -> None:
    profile = smoke()
    pair = read_paired_run(finished_run(tmp_path / "smoke-1", profile, summary(), []))
    arm = bare_arm(pair)
    assert arm.bare_of == "smoke-1"
    assert arm.folder == pair.folder / "bare"
    gates = applicable(arm.inputs.profile.gates, "")
    assert any(gate.metric.startswith("pods.") for gate in gates)
    assert not any(gate.metric.startswith(("machines.", "components.")) for gate in gates)


def test_the_arms_with_and_without_anchors_share_plan_and_gates(tmp_path: Path) -> None:
    """The profile says `both`; each arm says on or off."""
    inputs = prepare_inputs(RunOptions("smoke", PROFILES, tmp_path, {}))
    on, off = (with_anchors(inputs, word) for word in ("on", "off"))
    assert (on.profile.settings.anchors, off.profile.settings.anchors) == ("on", "off")
    assert on.plan == off.plan
    assert on.profile.gates == off.profile.gates == inputs.profile.gates
