"""The inventory file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bigfleet.model.errors import InvalidInput
from bigfleet.model.machine import CapacityType, MachineState, violations
from bigfleet.model.need import Taint
from bigfleet.services.provider import inventory
from tests.support.providers import LINE, write_inventory


def test_a_line_becomes_a_machine_with_the_labels_its_node_will_have(tmp_path: Path) -> None:
    """Type, zone, rack and capacity type become labels; only an idle machine has a host."""
    path = write_inventory(
        tmp_path / "i.jsonl", {}, {"id": "m-1", "state": "IDLE", "capacity_type": "SPOT"}
    )
    path.write_text(path.read_text() + "\n")
    speculative, idle = inventory.read(path)
    assert (speculative.state, speculative.host) == (MachineState.SPECULATIVE, "")
    assert (idle.state, idle.host, idle.capacity_type) == (
        MachineState.IDLE,
        "m-1",
        CapacityType.SPOT,
    )
    assert idle.labels == {
        "node.kubernetes.io/instance-type": "m6i.large",
        "topology.kubernetes.io/zone": "zone-a",
        "topology.bigfleet/rack": "zone-a-r1",
        "bigfleet.lucy.sh/capacity-type": "spot",
        "example.com/team": "blue",
    }
    assert idle.resources == {"cpu": 40_000, "memory": 50 * 2**20, "pods": 110_000}
    assert not list(violations(idle))


def test_a_line_can_taint_its_machine(tmp_path: Path) -> None:
    """Sorted, whatever the order in the line."""
    spot = {"key": "example.com/spot", "value": "yes", "effect": "NoExecute"}
    path = write_inventory(
        tmp_path / "i.jsonl", {"taints": [spot, {"key": "a", "effect": "NoSchedule"}]}
    )
    (machine,) = inventory.read(path)
    assert machine.taints == (
        Taint("a", "", "NoSchedule"),
        Taint("example.com/spot", "yes", "NoExecute"),
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"id": "Not_A_Label"}, r"line 2: .*\$\.id"),
        ({"id": "x" * 37}, r"line 2: .*\$\.id"),
        ({"state": "CONFIGURED"}, r"line 2: .*\$\.state"),
        ({"capacity_type": "ondemand"}, r"line 2: .*\$\.capacity_type"),
        ({"price_per_hour": -1}, r"line 2: .*\$\.price_per_hour"),
        ({"price_per_hour": "1"}, r"line 2: .*\$\.price_per_hour"),
        ({"interruption_probability": 1.5}, r"line 2: .*\$\.interruption_probability"),
        ({"zone": ""}, r"line 2: .*\$\.zone"),
        ({"prise": 1}, "line 2: .*unknown field `prise`"),
        ({"labels": {"a": 1}}, r"line 2: .*\$\.labels"),
        ({"labels": {"topology.bigfleet/rack": "r9"}}, "line 2: labels: .*'r9' contradicts"),
        ({"resources": {"cpu": "lots"}}, "line 2: resources: cpu: 'lots' is not"),
        ({"resources": {"cpu": "4", "pods": "9"}}, "line 2: resources: memory: 'nothing'"),
        ({"taints": [{"key": "a"}]}, r"line 2: .*effect"),
        ({"taints": [{"key": "a b", "effect": "NoSchedule"}]}, r"line 2: .*\$\.taints\[0\]\.key"),
        ({"taints": [{"key": "a", "effect": "Never"}]}, r"line 2: .*\$\.taints\[0\]\.effect"),
        (
            {"taints": [{"key": "a", "effect": "NoExecute", "value": v} for v in ("", "b")]},
            "line 2: taints: .* repeat",
        ),
        ({"id": "m-0"}, "line 2: id: 'm-0' repeats line 1"),
    ],
)
def test_a_bad_line_is_named_with_its_field(
    change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    """The error names the line and the field to correct."""
    path = write_inventory(tmp_path / "i.jsonl", {}, {"id": "m-1"} | change)
    with pytest.raises(InvalidInput, match=rf"{path} {said}"):
        list(inventory.read(path))


@pytest.mark.parametrize("missing", [key for key in LINE if key not in ("rack", "labels")])
def test_a_missing_field_is_named(missing: str, tmp_path: Path) -> None:
    """All fields but rack and labels are needed."""
    path = write_inventory(tmp_path / "i.jsonl", {})
    kept = {key: value for key, value in LINE.items() if key != missing}
    path.write_text(repr(kept).replace("'", '"'))
    with pytest.raises(InvalidInput, match=f"line 1: .*missing required field `{missing}`"):
        list(inventory.read(path))


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"{", "line 1: '{' is not a machine"), (b"\n", "has no machines"), (b"\xff", "line 1")],
)
def test_an_invalid_inventory_is_rejected(content: bytes, said: str, tmp_path: Path) -> None:
    """Broken JSON, no text at all and an empty file each get a sentence."""
    path = tmp_path / "i.jsonl"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=said):
        list(inventory.read(path))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The path is in the sentence."""
    with pytest.raises(InvalidInput, match=r"none\.jsonl' cannot be read: No such file"):
        list(inventory.read(tmp_path / "none.jsonl"))
