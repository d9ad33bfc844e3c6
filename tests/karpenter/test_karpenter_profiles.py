"""A profile names the system under test; what does not apply to it is refused or left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from loaddriver.errors import ProfileError
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
