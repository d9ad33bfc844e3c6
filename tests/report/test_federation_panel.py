"""The page shows a federated HPA: each cluster's replicas over time, and what held."""

from __future__ import annotations

import msgspec

from loaddriver.fedhpa.record import FederationRecord
from loaddriver.judge.federation.section import Sources, federation_section
from loaddriver.report import federation
from loaddriver.report.page import render_page
from tests.fedhpa.fedhpa_rig import busier, record, schedule, share_write
from tests.report.report_rig import make_run

SPLIT = [share_write(-30, name, 2, 12) for name in ("c1", "c2", "c3")]


def played() -> FederationRecord:
    made = schedule(more=busier(c2=1.675))
    return record(made, lambda t: {"c1": 2, "c2": 7 if t >= 112 else 2, "c3": 2})


def test_the_page_of_a_federated_run_has_a_chart_for_each_cluster() -> None:
    section = federation_section(Sources(played(), SPLIT, []))
    summary = msgspec.structs.replace(make_run(pods=200).summary, federation=section)
    page = render_page(summary, [])
    assert "The federated HPA" in page
    for name in ("c1", "c2", "c3"):
        assert f"replicas in {name} over time" in page
    assert "on premise, 8 places" in page
    assert "allowed, min to max" in page


def test_a_page_without_a_federation_says_nothing_of_one() -> None:
    assert "federated" not in render_page(make_run(pods=200).summary, [])


def test_a_broken_sum_is_marked_as_bad() -> None:
    broken = [*SPLIT, share_write(10, "c2", 2, 30)]
    section = federation_section(Sources(played(), broken, []))
    [fact] = [each for each in federation.facts(section) if each.name == "Sums broken"]
    assert fact.bad
    assert fact.value == "1"


def test_charts_of_all_clusters_have_one_scale() -> None:
    section = federation_section(Sources(played(), [*SPLIT, share_write(10, "c2", 2, 30)], []))
    drawings = [str(chart.drawings) for _, _, chart in federation.plots(section)]
    assert len({drawing.count('class="tick"') for drawing in drawings}) == 1
