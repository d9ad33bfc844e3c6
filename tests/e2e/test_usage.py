"""An invalid command is rejected before anything is started, with a helpful message."""

from __future__ import annotations

import pytest

from loaddriver.__main__ import main
from loaddriver.run import inputs
from loaddriver.sizing.estimate import HostCapacity


def preflight_error(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["preflight", *arguments])
    return code, capsys.readouterr().err


def test_an_unknown_profile_lists_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    """So that a typing error is easy to fix."""
    code, message = preflight_error(capsys, "smok")
    assert code == 2
    assert all(name in message for name in ("smoke", "dev-50", "dev-500"))


def test_an_unknown_key_names_file_key_and_hint(capsys: pytest.CaptureFixture[str]) -> None:
    """The error names the valid key."""
    code, message = preflight_error(capsys, "smoke", "--set", "soak.churnPodsPerMinute=60")
    assert code == 2
    assert "smoke/profile.yaml" in message
    assert "churnPodsPerSecond" in message


def test_a_wrong_unit_names_the_value(capsys: pytest.CaptureFixture[str]) -> None:
    """Units are in the keys; a value with a unit is rejected."""
    code, message = preflight_error(capsys, "smoke", "--set", "soak.seconds=1m")
    assert code == 2
    assert "soak.seconds" in message
    assert "1m" in message


@pytest.mark.parametrize(
    ("host", "named"),
    [
        (HostCapacity(cores=2, memory_available_bytes=2**29, disk_free_bytes=2**40), "memory"),
        (HostCapacity(cores=2, memory_available_bytes=2**40, disk_free_bytes=2**20), "disk"),
    ],
)
def test_insufficient_memory_or_disk_is_reported_before_the_start(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    host: HostCapacity,
    named: str,
) -> None:
    """Too little memory or disk is one clear line and the exit code of infrastructure."""
    monkeypatch.setattr(inputs, "read_host", lambda _results: host)
    code, message = preflight_error(capsys, "smoke")
    assert code == 6
    assert named in message
