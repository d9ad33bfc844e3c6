"""What is kept of a cluster that is about to be removed: logs as a local run has them, a bundle."""

from __future__ import annotations

import json
from pathlib import Path

from bigfleet.kube.client import ApiError
from kind.errors import KindError
from loaddriver.substrates.kind.diagnostics import write_diagnostics
from loaddriver.substrates.kind.pod_logs import plain, write_plain

AT = "2026-11-21T08:00:00.123456789Z"


def test_a_log_reads_as_the_container_wrote_it() -> None:
    """The node's marks go; a line that it cut in pieces is whole again; nothing is dropped."""
    lines = [
        f"{AT} stderr F first",
        f"{AT} stdout P half ",
        f"{AT} stdout F and half",
        f"{AT} stdout F ",
        "not of this form",
        f"{AT} stdout P cut off",
    ]
    assert list(plain(lines)) == [
        "first",
        "half and half",
        "",
        "not of this form",
        "cut off",
    ]


def test_every_component_has_its_log_where_a_local_run_has_it(tmp_path: Path) -> None:
    """All starts of a container in one file, by number and not by name."""
    pods = tmp_path / "pods"
    shard = pods / "bigfleet-system_shard-0-0_uid" / "shard-0"
    for start in (10, 2, 0):
        write(shard / f"{start}.log", f"{AT} stderr F start {start}\n")
    write(pods / "kube-system_coredns-1_uid" / "coredns" / "0.log", f"{AT} stderr F dns\n")
    places = {("bigfleet-system", "shard-0-0", "shard-0"): "shard-0"}
    write_plain(pods, places, "c1/pods", tmp_path / "logs")
    assert (tmp_path / "logs/shard-0.log").read_text() == "start 0\nstart 2\nstart 10\n"
    assert (tmp_path / "logs/c1/pods/coredns-1/coredns.log").read_text() == "dns\n"


async def test_a_bundle_has_objects_and_the_nodes_own_word(tmp_path: Path) -> None:
    async def get(path: str) -> bytes:
        return json.dumps({"asked": path}).encode()

    def export(folder: Path) -> None:
        write(folder / "journal.log", "kubelet said\n")

    await write_diagnostics(tmp_path / "bundle", get, export)
    pods = json.loads((tmp_path / "bundle/pods.json").read_text())
    assert pods == {"asked": "/api/v1/pods"}
    assert {file.name for file in (tmp_path / "bundle").iterdir()} == {
        "events.json",
        "nodes.json",
        "persistentvolumeclaims.json",
        "pods.json",
        "services.json",
        "node",
    }


async def test_what_cannot_be_had_is_named_and_hinders_nothing(tmp_path: Path) -> None:
    """A cluster that fails seldom answers everything."""

    async def get(path: str) -> bytes:
        if path.endswith("events"):
            raise ApiError(f"GET {path}", 500, "InternalError", "etcd is gone")
        if path.endswith("nodes"):
            raise TimeoutError
        return b"{}"

    def export(_: Path) -> None:
        raise KindError("no such container")

    await write_diagnostics(tmp_path / "bundle", get, export)
    missing = (tmp_path / "bundle/missing.txt").read_text()
    assert missing.splitlines() == [
        "events: GET /api/v1/events: 500 InternalError: etcd is gone",
        "nodes: TimeoutError()",
        "the node's logs and journal: no such container",
    ]
    assert (tmp_path / "bundle/pods.json").exists()


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
