"""A profile names the system under test; what does not apply to it is refused or left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from loaddriver.__main__ import main
from loaddriver.errors import ExitCode, ProfileError
from loaddriver.judge.applicability import applicable
from loaddriver.profile.loading import load_profile

PROFILES = Path(__file__).parents[2] / "profiles"


@pytest.mark.parametrize(
    ("profile", "named"),
    [("cr-50", "load.mode"), ("fedhpa-3", "federation"), ("dev-50", "anchors")],
)
def test_what_only_bigfleet_has_is_refused_with_its_key(profile: str, named: str) -> None:
    with pytest.raises(ProfileError, match=named):
        load_profile(profile, PROFILES, ["system=karpenter"])


def test_gates_on_what_only_bigfleet_does_are_left_out() -> None:
    """All others are judged: bound pods, waits, gangs, disruptions, cost."""
    gates = load_profile("mixed-50", PROFILES, []).gates
    judged = {gate.metric for gate in applicable(gates, "karpenter")}
    left_out = {gate.metric for gate in gates} - judged
    assert {"stability.releasedUnexplained", "components.shortfallsAtEnd"} <= left_out
    assert {
        "backlog.atEnd",
        "dueToBindSeconds.p50",
        "cost.rampEnd.dollarsRatio",
        "stability.disruptedWhileGrowing",
    } <= judged


@pytest.mark.parametrize(
    ("definitions", "kubeconfig", "code", "named"),
    [
        (None, "", ExitCode.USAGE, "--definitions"),
        ("no JSON", "", ExitCode.USAGE, "--definitions"),
        ("[]", "", ExitCode.INFRASTRUCTURE, "--kubeconfig"),
        ("[]", "clusters: []", ExitCode.INFRASTRUCTURE, "--kubeconfig"),
    ],
)
def test_what_a_setup_is_given_and_cannot_use_is_named(
    definitions: str | None,
    kubeconfig: str,
    code: ExitCode,
    named: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without a traceback: it is the log of a container."""
    for name, text in (("definitions", definitions), ("kubeconfig", kubeconfig or None)):
        if text is not None:
            (tmp_path / name).write_text(text)
    flags = [f"--{name}={tmp_path / name}" for name in ("definitions", "kubeconfig")]
    types = f"--instance-types={tmp_path / 'types'}"
    assert main(["karpenter-setup", "smoke", "--set=system=karpenter", *flags, types]) == code
    assert f"{named} {tmp_path}" in capsys.readouterr().err
