"""The committed stubs are what the .proto files say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bigfleet.api.v1alpha1 import capacity_pb2, provider_pb2, shard_pb2

ROOT = Path(__file__).parents[2]
STUBS = ROOT / "bigfleet/api/v1alpha1"


def test_stubs_are_current(tmp_path: Path) -> None:
    """Generating the stubs again changes nothing; otherwise run `make stubs`."""
    protos = [str(p.relative_to(ROOT)) for p in sorted(STUBS.glob("*.proto"))]
    outputs = [f"--{kind}={tmp_path}" for kind in ("python_out", "grpc_python_out")]
    outputs += [f"--{kind}=quiet:{tmp_path}" for kind in ("mypy_out", "mypy_grpc_out")]
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "-I.", *outputs, *protos],
        cwd=ROOT,
        check=True,
        env={"PATH": f"{Path(sys.executable).parent}:{os.defpath}"},  # its plugins are found there
    )
    generated = sorted((tmp_path / "bigfleet/api/v1alpha1").iterdir())
    assert len(generated) == 4 * len(protos)
    stale = [g.name for g in generated if g.read_bytes() != (STUBS / g.name).read_bytes()]
    assert not stale, "run `make stubs`"


def test_field_numbers_are_the_published_contract() -> None:
    """A provider or operator written for BigFleet elsewhere speaks to this one."""
    machine = provider_pb2.Machine.DESCRIPTOR.fields_by_name
    assert {n: f.number for n, f in machine.items()} == {
        "id": 1, "state": 2, "host": 3, "instance_type": 4, "zone": 5, "capacity_type": 6,
        "price_per_hour": 7, "interruption_probability": 8, "resources": 9, "labels": 10,
        "last_error": 12, "allocatable": 13, "cluster": 14, "shard_metadata": 15,
        "taints": 100,
    }  # fmt: skip
    need = capacity_pb2.CapacityNeed.DESCRIPTOR.fields_by_name
    assert [need[n].number for n in ("requirements", "min_unit", "group")] == [1, 8, 9]
    services = shard_pb2.DESCRIPTOR.services_by_name
    assert services["Shard"].full_name == "bigfleet.v1alpha1.Shard"


def test_fields_of_our_own_start_at_100() -> None:
    """What the published contract does not have cannot collide with its later fields."""
    ours = {
        "Acknowledgement": {
            "rejected", "rejected_items", "unconfirmed_reductions", "left_out", "left_out_why",
        },
        "BootstrapRequest": {"machine_id"},
        "ReclaimInstruction": {"max_cost", "gang"},
        "ReclaimAck": {"refused"},
    }  # fmt: skip
    for message, fields in ours.items():
        descriptor = shard_pb2.DESCRIPTOR.message_types_by_name[message]
        assert {f.name for f in descriptor.fields if f.number >= 100} == fields
    listed = provider_pb2.DESCRIPTOR.message_types_by_name
    pages = {"ListFilter": ["page_token"], "MachineList": ["next_page_token", "provider"]}
    for message, each in pages.items():
        assert [f.name for f in listed[message].fields if f.number >= 100] == each


def test_penalty_buckets_are_powers_of_two() -> None:
    """Bucket n from 3 to 26 ends at 2**(n-3) dollars, and 27 is PINNED."""
    names = {v.number: v.name for v in capacity_pb2.PenaltyBucket.DESCRIPTOR.values}
    assert names[27] == "PENALTY_BUCKET_PINNED"
    assert all(names[n] == f"PENALTY_BUCKET_{2 ** (n - 3)}" for n in range(3, 27))
