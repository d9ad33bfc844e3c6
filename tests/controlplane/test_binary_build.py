from __future__ import annotations

import os
import queue
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane import cache
from controlplane.command import failure_message, run_logged
from controlplane.compiler import find_compiler
from controlplane.errors import BinaryError
from controlplane.pins import (
    CHANGES,
    KARPENTER,
    METRICS_SERVER,
    OPTIONAL_MODULES,
    PINNED_MODULES,
)
from controlplane.platforms import Platform
from controlplane.resolve import resolve
from tests.controlplane.controlplane_rig import PINNED_VERSIONS, Rig

# Only a failing test waits this long: machines that run tests may be slow.
WAIT_SECONDS = 90.0


def build_in_thread(rig: Rig, lines: queue.Queue[str]) -> threading.Thread:
    request = rig.request("gate")
    thread = threading.Thread(target=resolve, args=(request, lines.put), daemon=True)
    thread.start()
    return thread


def wait_for(lines: queue.Queue[str], part: str) -> str:
    """The first progress line that holds part; queue.Empty if none comes in time."""
    while True:
        line = lines.get(timeout=WAIT_SECONDS)
        if part in line:
            return line


def test_everything_missing_is_built_one_call_a_module_and_is_cached_afterwards(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    built = resolve(rig.request(), rig.lines.append)
    assert built.versions == PINNED_VERSIONS
    changed = {"kwok"}
    assert built.origin == {
        name: f"built from {'changed ' if name in changed else ''}source" for name in built.versions
    }
    again = resolve(rig.request(), rig.lines.append)
    assert set(again.origin.values()) == {"cache"}
    assert again.paths == built.paths
    calls = rig.calls("build")
    assert [call.split(":")[0].rpartition("/")[2] for call in calls] == [
        "kubernetes",
        "etcd",
        "kwok",
    ]
    assert all(f"cmd/{name}" in calls[0] for name in list(PINNED_VERSIONS)[:3])
    assert "-trimpath" in calls[0]


def test_an_optional_component_is_built_only_for_those_who_ask_for_it(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    assert resolve(rig.request(), rig.lines.append).metrics_server is None
    assert METRICS_SERVER not in rig.binaries()
    built = resolve(rig.request(), rig.lines.append, [METRICS_SERVER])
    assert built.metrics_server == built.paths[METRICS_SERVER]
    assert built.origin[METRICS_SERVER] == "built from source"
    assert len(rig.calls("build")) == len(PINNED_MODULES) + 1


def test_builds_are_cgo_free_read_only_and_keep_to_the_local_compiler(tmp_path: Path) -> None:
    request = Rig(tmp_path).request(GOFLAGS="-mod=vendor", GOTOOLCHAIN="auto", GOWORK="/elsewhere")
    compiler = find_compiler(request.environment, request.platform, "building")
    expected = {
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly -buildvcs=false",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "GOOS": "linux",
        "GOARCH": "amd64",
    }
    assert {name: compiler.environment[name] for name in expected} == expected


def test_without_a_compiler_people_are_told_what_to_install_or_set(tmp_path: Path) -> None:
    request = Rig(tmp_path).request(PATH=str(tmp_path / "nowhere"))
    with pytest.raises(BinaryError, match=r"install Go 1\.26 or later.*BIGFLEET_BINARIES"):
        resolve(request, lambda _: None)


@pytest.mark.parametrize("version", ["go1.25.9", "", "devel"])
def test_a_compiler_that_is_too_old_is_named_with_its_version(tmp_path: Path, version: str) -> None:
    rig = Rig(tmp_path)
    with pytest.raises(BinaryError, match="want Go") as caught:
        resolve(rig.request(FAKE_GO_VERSION=version), rig.lines.append)
    assert str(tmp_path / "bin" / "go") in str(caught.value)
    assert version in str(caught.value)


def test_a_failed_build_reports_the_command_its_last_lines_and_the_log_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    with pytest.raises(BinaryError) as caught:
        resolve(rig.request("fail"), rig.lines.append)
    message = str(caught.value)
    assert f"{tmp_path / 'bin' / 'go'} build" in message
    assert "  pkg/a.go:1: syntax error" in message
    log = Path(message.rpartition("log: ")[2])
    assert "syntax error" in log.read_text(encoding="utf-8")
    assert rig.binaries() == []
    assert rig.staging() == []


def test_a_disk_that_fills_up_during_a_build_is_one_line(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    with pytest.raises(BinaryError, match=r"\Athe disk filled up while building kube-") as caught:
        resolve(rig.request("full"), rig.lines.append)
    assert "\n" not in str(caught.value)
    assert "log: " in str(caught.value)


@pytest.mark.parametrize(
    ("output", "beginning"),
    [
        ("link: signal: killed", "the compiler was killed, probably for lack of memory"),
        ("fork: Cannot allocate memory", "memory ran out"),
        ("write: disk quota exceeded", "the disk quota was used up"),
    ],
)
def test_a_cause_outside_the_sources_is_reported_in_one_line(output: str, beginning: str) -> None:
    message = failure_message("building x", ["go", "build"], 1, f"noise\n{output}\n")
    assert message.startswith(beginning)
    assert "\n" not in message


def test_a_binary_of_another_version_than_pinned_is_not_installed(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    with pytest.raises(
        BinaryError, match=r"etcd .built from source. reports version 3\.7\.2, want 3\.7\.3"
    ):
        resolve(rig.request(FAKE_ETCD_VERSION="3.7.2"), rig.lines.append)
    assert "etcd" not in rig.binaries()


def test_too_little_disk_space_ends_before_the_compiler_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path)
    monkeypatch.setattr("controlplane.build.shutil.disk_usage", _almost_full)
    with pytest.raises(BinaryError, match="not enough disk space for building kube-"):
        resolve(rig.request(), rig.lines.append)
    assert rig.calls("build") == []


class _AlmostFull:
    free = 1 << 20


def _almost_full(_path: object) -> _AlmostFull:
    return _AlmostFull()


def test_a_half_written_binary_is_never_seen_and_a_second_process_waits_instead_of_building(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    gate = rig.make_gate()
    first_lines: queue.Queue[str] = queue.Queue()
    second_lines: queue.Queue[str] = queue.Queue()
    first = build_in_thread(rig, first_lines)
    assert "usually 5 to 7 min" in wait_for(first_lines, "s elapsed")
    second = build_in_thread(rig, second_lines)
    wait_for(second_lines, "waiting for another process that is installing kube-apiserver")
    assert rig.binaries() == []
    gate.write_text("go on\n", encoding="utf-8")
    for thread in (first, second):
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()
    assert len(rig.binaries()) == 5
    assert len(rig.calls("build")) == 3
    assert rig.staging() == []


def test_an_interrupted_build_ends_its_compiler_and_leaves_nothing(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.make_gate()
    pid_file = tmp_path / "pid"

    def interrupt(line: str) -> None:
        if "elapsed" in line and pid_file.exists() and pid_file.read_text(encoding="ascii"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resolve(rig.request("gate"), interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text(encoding="ascii")), 0)
    assert rig.staging() == []
    assert rig.binaries() == []


def test_what_a_killed_process_left_is_cleared_by_the_next_build(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    leftover = tmp_path / "cache" / "controlplane" / ".staging-etcd-killed"
    leftover.mkdir(parents=True)
    (leftover / "etcd").write_text("half", encoding="utf-8")
    resolve(rig.request(), rig.lines.append)
    assert rig.staging() == []


def test_a_command_past_its_deadline_is_ended_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.command.DEADLINE_SECONDS", 0.1)
    waited: list[float] = []
    with pytest.raises(BinaryError, match="timed out"):
        run_logged(
            "waiting", ["sleep", "60"], tmp_path, os.environ, tmp_path / "log", waited.append, 0.05
        )
    assert waited


def test_a_cache_that_cannot_be_written_is_one_line_that_names_it(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    (tmp_path / "file").write_text("", encoding="utf-8")
    request = replace(rig.request(), cache_directory=tmp_path / "file")
    with pytest.raises(BinaryError, match="Not a directory") as caught:
        resolve(request, rig.lines.append)
    assert str(tmp_path / "file") in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["main.go", CHANGES])
def test_a_program_of_this_repository_is_built_anew_when_its_source_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Its version is that of a module, which stays the same."""
    module, platform = OPTIONAL_MODULES[KARPENTER], Platform("linux", "amd64")
    paths = set()
    for number, source in enumerate(["package main\n", "package main // changed\n"]):
        monkeypatch.setattr(cache, "MODULES_DIRECTORY", tmp_path / str(number))
        own = tmp_path / str(number) / KARPENTER / name
        own.parent.mkdir(parents=True)
        own.write_text(source)
        paths.add(cache.cached_path(Path("cache"), module, KARPENTER, platform))
    assert len(paths) == 2


def test_a_change_that_does_not_fit_the_source_is_an_error_and_installs_nothing(
    tmp_path: Path,
) -> None:
    """As when the version is raised and the changes are not looked at."""
    rig = Rig(tmp_path)
    request = rig.request()
    [source] = (tmp_path / "source").rglob("*.go")
    source.chmod(0o644)
    source.write_text("package informer\n")
    with pytest.raises(BinaryError, match=r"building kwok .*git apply"):
        resolve(request, rig.lines.append)
    assert "kwok" not in rig.binaries()
    assert rig.staging() == []


def test_without_git_people_are_told_to_install_it(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.request()
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("go", "sh", "mkdir", "dirname", "sed", "cp", "chmod"):
        found = shutil.which(name, path=f"{tmp_path / 'bin'}:/usr/bin:/bin")
        assert found is not None
        (tools / name).symlink_to(found)
    with pytest.raises(BinaryError, match=r"building kwok .* needs git"):
        resolve(rig.request(PATH=str(tools)), rig.lines.append)
