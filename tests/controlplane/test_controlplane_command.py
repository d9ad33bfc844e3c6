from __future__ import annotations

import os
from pathlib import Path

import pytest

from controlplane.__main__ import INFRASTRUCTURE_FAILED, USAGE_ERROR, main
from controlplane.errors import BinaryUsageError
from controlplane.locate import locate, query_version
from controlplane.pins import COMPONENTS, wanted_modules
from controlplane.request import default_cache_directory, request_from
from tests.controlplane.controlplane_rig import Rig, give


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """No caller's setting reaches the command; its cache is this test's."""
    for name in ("BIGFLEET_BINARIES", "KUBEBUILDER_ASSETS", "KUBERNETES_VERSION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    return monkeypatch


def use_stand_in(environment: pytest.MonkeyPatch, rig: Rig, mode: str = "good") -> None:
    for name, value in rig.request(mode).environment.items():
        environment.setenv(name, value)


def test_get_prints_paths_and_versions_alone_on_stdout_and_progress_on_stderr(
    environment: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use_stand_in(environment, Rig(tmp_path))
    assert main(["--build"]) == 0
    output = capsys.readouterr()
    rows = [line.split() for line in output.out.splitlines()]
    assert [row[0] for row in rows] == list(COMPONENTS)
    assert all(Path(row[-1]).is_file() for row in rows)
    assert rows[3][1] == "3.7.3"
    assert "building etcd 3.7.3 from source" in output.err


def test_where_lists_what_is_there_gets_nothing_and_fails_while_something_is_missing(
    environment: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environment.setenv("KUBEBUILDER_ASSETS", str(give(tmp_path / "assets", "etcd")))
    assert main(["where"]) == INFRASTRUCTURE_FAILED
    output = capsys.readouterr()
    assert output.out.startswith("etcd ")
    assert "missing: kube-apiserver 1.36.3" in output.err
    assert not (tmp_path / "xdg").exists()


def test_where_succeeds_when_all_are_there(
    environment: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environment.setenv("BIGFLEET_BINARIES", str(tmp_path / "not used"))
    assert main(["where", "--binaries", str(give(tmp_path / "given"))]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(COMPONENTS)


def test_a_failing_step_is_exit_code_6_without_a_traceback(
    environment: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use_stand_in(environment, Rig(tmp_path), "full")
    assert main(["get", "--build"]) == INFRASTRUCTURE_FAILED
    output = capsys.readouterr()
    assert output.out == ""
    assert "error: the disk filled up while building" in output.err


def test_an_invalid_version_is_exit_code_2(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environment.setenv("KUBERNETES_VERSION", "newest")
    assert main(["where"]) == USAGE_ERROR
    assert "error: Kubernetes version 'newest'" in capsys.readouterr().err


def test_an_unknown_command_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["fetch"])
    assert caught.value.code == USAGE_ERROR
    assert "invalid choice: 'fetch'" in capsys.readouterr().err


def test_the_help_fits_a_terminal_of_80_columns(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environment.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert max(len(line) for line in text.splitlines()) <= 80
    assert all(f"\n  {command} " in text for command in ("get", "where", "pin"))


def test_flags_win_over_the_environment_and_directories_keep_their_order(tmp_path: Path) -> None:
    settings = {
        "HOME": "/home/a",
        "BIGFLEET_BINARIES": "/set",
        "KUBEBUILDER_ASSETS": "/assets",
        "KUBERNETES_VERSION": "1.35.4",
    }
    plain = request_from(settings)
    assert plain.given_directories == (Path("/set"), Path("/assets"))
    assert plain.kubernetes_version == "1.35.4"
    flagged = request_from(
        settings, binaries="/flag", cache=str(tmp_path), kubernetes_version="1.36.1"
    )
    assert flagged.given_directories == (Path("/flag"), Path("/assets"))
    assert flagged.kubernetes_version == "1.36.1"
    assert flagged.directory == tmp_path / "controlplane"


@pytest.mark.parametrize(
    ("settings", "directory"),
    [
        ({"HOME": "/home/a"}, "/home/a/.cache/bigfleet"),
        ({"HOME": "/home/a", "XDG_CACHE_HOME": "/cache"}, "/cache/bigfleet"),
        ({"HOME": "/home/a", "XDG_CACHE_HOME": "relative"}, "/home/a/.cache/bigfleet"),
    ],
)
def test_the_cache_lies_where_the_xdg_rules_put_it(
    settings: dict[str, str], directory: str
) -> None:
    assert default_cache_directory(settings) == Path(directory)


def test_without_any_home_the_caller_is_asked_for_a_cache() -> None:
    with pytest.raises(BinaryUsageError, match="--cache DIR"):
        default_cache_directory({})


@pytest.mark.cluster
def test_the_real_binaries_state_the_versions_they_are_known_by() -> None:
    request = request_from(os.environ)
    found = locate(request, lambda _: None)
    missing = [name for name in COMPONENTS if name not in found]
    if missing:
        pytest.skip(f"not on this machine yet: {', '.join(missing)} (python -m controlplane get)")
    pinned = {
        name: module.version
        for module in wanted_modules(request.kubernetes_version)
        for name in module.components
    }
    for name, here in found.items():
        assert query_version(here.path) == here.version
        assert here.origin != "cache" or here.version == pinned[name]
