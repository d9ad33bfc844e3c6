"""Gates and hops that say nothing about the system under test are named, not dropped in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from loaddriver.judge.applicability import applicable, not_applicable
from loaddriver.judge.cost import cost_section
from loaddriver.profile.loading import load_profile
from tests.judge.fleet_rig import fleet, machine, observed
from tests.judge.judge_rig import facts

PROFILES = Path(__file__).parents[2] / "profiles"
GATES = load_profile("mixed-50", PROFILES, []).gates


@pytest.mark.parametrize("system", ["", "none", "command", "karpenter"])
def test_each_gate_is_judged_or_named_with_a_reason(system: str) -> None:
    found = not_applicable(GATES, system)
    assert found is not None
    judged = [gate.name for gate in applicable(GATES, system)]
    assert sorted([*judged, *(gate.name for gate in found.gates)]) == sorted(g.name for g in GATES)
    assert judged
    assert all(gate.reason for gate in found.gates)


def test_everything_applies_to_bigfleet() -> None:
    assert not_applicable(GATES, "bigfleet") is None
    assert applicable(GATES, "bigfleet") == list(GATES)


def test_without_an_autoscaler_no_gate_is_on_what_one_decides() -> None:
    metrics = [gate.metric for gate in applicable(GATES, "none")]
    assert not any(metric.startswith(("cost.", "stability.")) for metric in metrics)
    assert any(metric.startswith("dueToBindSeconds.") for metric in metrics)


def test_nodes_without_a_price_make_the_cost_unknown_and_not_zero() -> None:
    """A gate on it then fails, and nobody takes an unpriced fleet for a cheap one."""
    known = fleet(machine("m-1"))
    seen = [observed({"m-1": (0, None)})]
    assert cost_section(facts(fleet=known), seen, [], None) is not None
    assert (
        cost_section(facts(fleet=fleet(machine("m-1"), unpriced_nodes=1)), seen, [], None) is None
    )
