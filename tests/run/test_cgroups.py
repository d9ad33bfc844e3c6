"""What cgroups leave to a run is what preflight counts on, not what the whole machine has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from loaddriver.run import host
from loaddriver.run.cgroups import memory_left
from loaddriver.run.cpu_quota import find_quotas

GIBIBYTE = 2**30
UNLIMITED_V1 = "9223372036854771712"


def folder(root: Path, name: str, files: Mapping[str, object]) -> None:
    """A cgroup with these files."""
    (root / name).mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        (root / name / file).write_text(f"{content}\n")


def v2(limit: object, used: int = 0, droppable: int = 0) -> dict[str, object]:
    """The memory files of a cgroup of version 2."""
    stat = f"anon 5\ninactive_file {droppable}"
    return {"memory.max": limit, "memory.current": used, "memory.stat": stat}


def v1(limit: object, used: int = 0, droppable: int = 0) -> dict[str, object]:
    """The memory files of a cgroup of version 1."""
    stat = f"inactive_file 0\ntotal_inactive_file {droppable}"
    files = {"memory.limit_in_bytes": limit, "memory.usage_in_bytes": used}
    return {**files, "memory.stat": stat}


@pytest.mark.parametrize(
    ("own", "folders", "left"),
    [
        ("0::/\n", {"": v2(4 * GIBIBYTE, GIBIBYTE)}, 3 * GIBIBYTE),
        ("0::/\n", {"": v2("max", GIBIBYTE)}, None),
        ("0::/\n", {}, None),
        ("4:memory:/box\n", {"memory/box": v1(2 * GIBIBYTE, GIBIBYTE)}, GIBIBYTE),
        ("4:memory:/box\n", {"memory/box": v1(UNLIMITED_V1, GIBIBYTE)}, None),
        ("4:cpu:/box\n", {"cpu/box": v1(GIBIBYTE)}, None),
        ("0::/a/b\n", {"a": v2(GIBIBYTE), "a/b": v2(4 * GIBIBYTE)}, GIBIBYTE),
        ("0::/a\n", {"a": v2(GIBIBYTE, GIBIBYTE, droppable=GIBIBYTE // 2)}, GIBIBYTE // 2),
        ("0::/a\n", {"a": v2(GIBIBYTE, 2 * GIBIBYTE)}, 0),
    ],
)
def test_the_strictest_memory_limit_around_a_process_counts(
    tmp_path: Path, own: str, folders: Mapping[str, Mapping[str, object]], left: int | None
) -> None:
    """With either version of cgroups; the page cache counts as free, because it is dropped."""
    (tmp_path / "self").write_text(own)
    for name, files in folders.items():
        folder(tmp_path / "cgroup", name, files)
    assert memory_left(tmp_path / "cgroup", tmp_path / "self") == left


def test_preflight_counts_on_no_more_memory_than_the_container_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, a run started in a small container of a large machine and was killed in its ramp."""
    monkeypatch.setattr(host, "memory_left", lambda: 12345)
    assert host.read_host(tmp_path).memory_available_bytes == 12345
    monkeypatch.setattr(host, "memory_left", lambda: None)
    assert host.read_host(tmp_path).memory_available_bytes > 12345


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu.cfs_quota_us": 50000, "cpu.cfs_period_us": 100000}, 0.5),
    ],
)
def test_a_quota_says_how_many_cores_it_is_worth(
    tmp_path: Path, files: Mapping[str, object], cores: float
) -> None:
    """Half a core of quota is half a core, however many the machine shows."""
    folder(tmp_path, "", files)
    (tmp_path / "self").write_text("0::/\n")
    [quota] = find_quotas(tmp_path, tmp_path / "self")
    assert quota.cores == cores
