"""What cannot work is refused before anything is started, in words that help."""

from __future__ import annotations

import pytest

from loaddriver.__main__ import main
from loaddriver.run import inputs
from loaddriver.sizing.estimate import HostCapacity


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["preflight", *arguments])
    return code, capsys.readouterr().err


def test_an_unknown_profile_lists_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    """A typing error costs one look, not a search."""
    code, said = refused(capsys, "smok")
    assert code == 2
    assert all(name in said for name in ("smoke", "dev-50", "dev-500"))


def test_an_unknown_key_names_file_key_and_cure(capsys: pytest.CaptureFixture[str]) -> None:
    """A key that does nothing is an error that names the right one."""
    code, said = refused(capsys, "smoke", "--set", "soak.churnPodsPerMinute=60")
    assert code == 2
    assert "smoke/profile.yaml" in said
    assert "churnPodsPerSecond" in said


def test_a_wrong_unit_names_the_value(capsys: pytest.CaptureFixture[str]) -> None:
    """Units are in the keys; a value with a unit of its own is refused."""
    code, said = refused(capsys, "smoke", "--set", "soak.seconds=1m")
    assert code == 2
    assert "soak.seconds" in said
    assert "1m" in said


@pytest.mark.parametrize(
    ("host", "named"),
    [
        (HostCapacity(cores=2, memory_available_bytes=2**29, disk_free_bytes=2**40), "memory"),
        (HostCapacity(cores=2, memory_available_bytes=2**40, disk_free_bytes=2**20), "disk"),
    ],
)
def test_a_machine_that_cannot_hold_the_run_is_named_before_the_start(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    host: HostCapacity,
    named: str,
) -> None:
    """Too little memory or disk is one clear line and the exit code of infrastructure."""
    monkeypatch.setattr(inputs, "read_host", lambda _results: host)
    code, said = refused(capsys, "smoke")
    assert code == 6
    assert named in said
