"""Gates and hops that say nothing about the system under test are named, not dropped in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from loaddriver.judge.applicability import applicable, not_applicable
from loaddriver.judge.cost import cost_section
from loaddriver.judge.rejudge import rejudge
from loaddriver.profile.loading import load_profile
from loaddriver.record.provenance import MachineIdentity, Provenance, ProviderUsed
from loaddriver.report.page import render_page
from tests.judge.fleet_rig import fleet, machine, observed
from tests.judge.judge_rig import facts, gate, row, summarised, unseen

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


def provider(*, cpu_measured: bool) -> ProviderUsed:
    return ProviderUsed(address="h:1", name="shop", machines=3, cpu_measured=cpu_measured)


def test_a_provider_that_cannot_be_seen_has_no_cpu_to_judge() -> None:
    """A number that is missing would fail its gate, as if it had been exceeded."""
    whole = gate("resources.components.provider.cpuSecondsPerPod", 1.0)
    others = gate("resources.components.shard.cpuSecondsPerPod", 1.0)
    unseen, seen = provider(cpu_measured=False), provider(cpu_measured=True)
    assert applicable([whole, others], "bigfleet", provider=unseen) == [others]
    assert applicable([whole, others], "bigfleet", provider=seen) == [whole, others]
    found = not_applicable([whole, others], "bigfleet", provider=unseen)
    assert found is not None
    assert [each.metric for each in found.gates] == [whole.metric]
    assert found.numbers.keys() == {"resources.components.provider"}
    assert not_applicable([whole, others], "bigfleet", provider=seen) is None


def test_the_summary_and_the_page_say_which_provider_it_was() -> None:
    """Judged again by other limits they say the same."""
    used = provider(cpu_measured=False)
    source = Provenance(
        revision="",
        dirty=None,
        code={},
        inputs={},
        dependencies="",
        binaries={},
        machine=MachineIdentity(id="m", calibration_seconds=0.01),
        provider=used,
    )
    found = summarised(facts(provenance=source), [unseen()], [row("a", 1, 3)], [])
    assert found.provenance is not None
    assert found.provenance.provider == used
    assert found.not_applicable is not None
    assert rejudge(found, []).not_applicable == found.not_applicable
    page = render_page(found, [])
    assert "shop at h:1" in page
    assert "resources.components.provider" in page


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
