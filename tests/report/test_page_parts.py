"""Every part of a summary has its place on the page, in the order in which people ask."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import msgspec
import pytest

from loaddriver.judge.interruptions import Interruptions
from loaddriver.judge.percentiles import AtLeast, Quantiles
from loaddriver.judge.price_following import PriceFollowing, PricePeriod
from loaddriver.judge.schema import OpenStage, Summary
from loaddriver.judge.side_by_side import side_by_side
from loaddriver.judge.summary import make_summary
from loaddriver.record.losses import LoadLosses
from loaddriver.record.requests import RequestRow
from loaddriver.report import resources, validity, view, waits
from loaddriver.report.page import render_page
from tests.report.report_rig import END, FILES, GATES, START, Run, gate, judged, make_run

KNEE = {"podsPerSecond": 83.2, "brokeAtStep": 7, "reason": "step 7 bound with p99 61.2 s"}


@pytest.fixture(scope="module")
def run() -> Run:
    """A run in which two pods of each cluster were never bound."""
    return make_run(2000, lost=2)


@pytest.fixture(scope="module")
def whole() -> Run:
    """A run in which every pod was bound."""
    return make_run(2000)


def text(summary: Summary) -> str:
    """What a reader sees, with a space wherever an element begins or ends."""
    body = render_page(summary, FILES).partition("</style>")[2]
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


def test_the_order_is_verdict_why_gates_wait_archetypes_gangs_soundness_versions(run: Run) -> None:
    """What decides comes first, what proves it last."""
    said = text(run.summary)
    parts = ("Fail", "No pod was left unbound", "What pods waited for", "Gates", "Pods bound",
             "Where the wait went", "By archetype", "By cluster", "How the first pod was placed",
             "Is the measurement valid?", "Versions")  # fmt: skip
    places = [said.index(part) for part in parts]
    assert places == sorted(places)


def test_a_failed_run_says_at_the_top_what_pods_waited_for(run: Run, whole: Run) -> None:
    """A run that passed has no such heading, but tells of its slowest pods further down."""
    assert all(sentence in text(run.summary) for sentence in run.summary.diagnosis)
    assert "What pods waited for" not in text(whole.summary)
    assert "The slowest pods Of all pods the slowest" in text(whole.summary)


def test_percentiles_stand_with_their_interval_or_as_a_bound(whole: Run) -> None:
    """A figure without one would claim more than the pods can tell."""
    rows = {row.name: row for row in waits.slice_rows(whole.summary.archetypes)}
    many, few = rows["tiny-stateless"].quantiles, rows["gpu-training-small"].quantiles
    assert many[2][1].count("\u2013") == 1
    assert few[2] == (few[2][0], "")
    assert few[2][0].startswith("\u2265")
    p99 = next(tile for tile in view.tiles(whole.summary) if tile.label == "Bound within, p99")
    assert p99.note.startswith("95\u202f% interval")


def test_few_pods_are_no_alarm_but_unbound_ones_are(run: Run) -> None:
    """The tile says what is missing."""
    few = make_summary(run.facts, [], run.rows[:100], GATES)
    tiles = {tile.label: tile for tile in view.tiles(few)}
    note = tiles["Bound within, p99"].note
    assert re.fullmatch(r"effective sample size [1-9]\d; 368 required", note)
    assert not tiles["Bound within, p99"].is_problem
    slowest = next(tile for tile in view.tiles(run.summary) if tile.label == "Slowest pod")
    assert slowest.is_problem


def test_the_page_shows_where_a_pods_cpu_goes(whole: Run) -> None:
    """A bar of all components, a table with their memory, and the writes of a pod."""
    used = whole.summary.resources
    assert used is not None
    assert sum(part.percent for part in resources.segments(used)) == pytest.approx(100, abs=0.1)
    rows = {row.name: row.texts for row in resources.component_rows(used)}
    assert list(rows)[:2] == ["kube-apiserver", "etcd"]
    apiserver = used.components["kube-apiserver"]
    assert apiserver.cpu_seconds_per_pod is not None
    assert rows["kube-apiserver"][0] == f"{1000 * apiserver.cpu_seconds_per_pod:.2f}\u202fms"
    assert rows["shard"][2:] == ["1", "115\u202fMiB"]
    assert [name for name, _ in resources.write_rows(used)] == [
        "patch pods/status",
        "create pods/binding",
    ]
    said = text(whole.summary)
    assert said.index("Where a pod's CPU goes") < said.index("Is the measurement valid?")
    assert "kube-controller-manager" in said
    assert "All processes together" not in said
    used = msgspec.structs.replace(used, peak_memory_bytes=13 * 2**30)
    said = text(msgspec.structs.replace(whole.summary, resources=used))
    assert "All processes together had 13.0 GiB at most, without pages of files." in said


def test_the_page_names_the_pods_whose_cpu_is_unknown(whole: Run) -> None:
    assert whole.summary.resources is not None
    used = msgspec.structs.replace(
        whole.summary.resources, cpu_seconds=None, cpu_seconds_per_pod=None, unknown=["c1/kwok"]
    )
    said = text(msgspec.structs.replace(whole.summary, resources=used))
    assert "Unknown is the CPU of c1/kwok, and so the total" in said


def test_a_run_whose_processes_are_unknown_says_nothing_of_their_cpu(whole: Run) -> None:
    assert "Where a pod's CPU goes" not in text(judged(whole, harness_health=None))


def test_the_page_says_what_the_result_came_from(whole: Run) -> None:
    """The revision with its mark at the top, all digests further down."""
    said = text(whole.summary)
    assert "revision c0ffee000000 + changes" in said[: said.index("Gates")]
    for words in (
        "Revision c0ffee000000 + changes",
        "code of loaddriver aaaaaaaaaaaa",
        "plan bbbbbbbbbbbb",
        "etcd dddddddddddd",
        "node kindest/node:v1.36.1",
        "Machine 0123456789abcdef",
        "A fixed task took 12.3 ms of CPU",
    ):
        assert words in said
    assert "Provenance" not in text(judged(whole, provenance=None))


def test_bands_fill_their_bars(whole: Run) -> None:
    """The parts of a bar are the whole of it, and the longest wait is the widest bar."""
    bands = waits.band_bars(whole.summary)
    assert [band.name for band in bands] == [
        "All bound pods", "The middle fifth", "The slowest hundredth",
    ]  # fmt: skip
    assert all(
        sum(part.percent for part in band.parts) == pytest.approx(100, abs=0.01) for band in bands
    )
    assert max(band.width for band in bands) == bands[2].width == 100


def test_an_open_stage_stands_with_the_two_kinds_of_its_waits(whole: Run) -> None:
    """Its latencies are gated, and the median of both kinds is that of neither."""
    kinds = whole.summary.placement
    assert list(kinds) == ["nodeWasReady", "waitedForNode"]
    stage = OpenStage(**msgspec.structs.asdict(whole.summary.ramp), placement=kinds)
    summary = msgspec.structs.replace(whole.summary, open_stage=stage)
    names = [row.name for row in waits.slice_rows(waits.phases(summary))]
    assert names[:4] == [
        "ramp",
        "open stage",
        "open stage, node was ready before the pod",
        "open stage, waited for its node",
    ]


def test_a_gate_for_each_shows_every_reading(run: Run) -> None:
    """Folded up below its name."""
    said = text(judged(run, gates=(gate("each", "clusters.*.pods", 1, "pods", ">="),)))
    assert "each of 2 c0 1" in said


def test_the_self_audit_shows_value_bound_and_reason_and_what_fails_first(whole: Run) -> None:
    """Also a value that nobody measured."""
    stalled = replace(whole.facts.harness_health, loop_stall_max_seconds=3.4)  # type: ignore[type-var]
    summary = judged(whole, harness_health=stalled, load={"maxLatenessSeconds": 0.1})
    first, second, *_ = validity.check_rows(summary)
    assert (first.value, first.limit, first.unit, first.verdict) == (
        "3.4", "\u2264 1", "seconds", "fail",
    )  # fmt: skip
    assert (second.value, second.verdict) == ("\u2013", "fail")
    assert second.reason.startswith("Not measured.")
    assert "Steps of load are released 1.5 s ahead" in text(summary)


def test_the_knee_has_a_section_where_the_ramp_looked_for_it(whole: Run) -> None:
    """With its numbers under readable names."""
    assert "The knee" in text(judged(whole, knee=KNEE))
    assert "pods per second 83.2" in text(judged(whole, knee=KNEE))
    assert "The knee" not in text(whole.summary)


def test_a_bare_run_stands_beside_its_pair(whole: Run) -> None:
    """Ratios by part and percentile; the bare run itself says what it is."""
    bare = judged(whole, bare=True, bare_of=whole.facts.id, id="bare-1")
    paired = make_summary(
        whole.facts, whole.observed, whole.rows, GATES, whole.journal,
        losses=LoadLosses(0, 0), bare=bare,
    )  # fmt: skip
    assert "Ratio to the bare run bare-1" in text(paired)
    assert (
        "creation to binding",
        ["\u2013", "1\u202f\u00d7", "1\u202f\u00d7", "1\u202f\u00d7"],
    ) in (waits.ratio_rows(paired))
    said = text(bare)
    assert "Bare run, without BigFleet, of profile" in said
    assert f"bare run of {whole.facts.id}" in said


def test_anchors_on_and_off_stand_side_by_side(run: Run) -> None:
    """Gang latency, completion, rack purity and stuck gangs of both."""
    on, _ = side_by_side(run.summary, judged(run, anchors="off", id="other"))
    said = text(on)
    assert "With and without anchors" in said
    assert "anchors on" in said
    assert "anchors off other" in said
    rows = dict(waits.sides(on))
    stuck = on.gangs.count - on.gangs.complete
    assert rows["Gangs never complete"] == [f"{stuck} of {on.gangs.count}"] * 2


def test_a_run_of_requests_shows_requests_and_no_pods(whole: Run) -> None:
    """Nothing is bound there, so nothing is said of binding."""
    rows = [
        RequestRow(
            cluster=f"c{n % 2}", namespace="load", name=str(n), uid=str(n), archetype="web",
            workload=f"w{n}", group="", step="1", created_micros=START + n,
            acknowledged_micros=START + n + 1_500_000, deleted_micros=None,
            observed_until_micros=END, source="audit",
        )
        for n in range(400)
    ]  # fmt: skip
    facts = replace(whole.facts, planned_pods=0, planned_groups={}, planned_requests=400)
    gates = [gate("acknowledged, p99", "requests.ackLatencySeconds.p99", 5)]
    summary = make_summary(facts, [], [], gates, requests=rows, losses=LoadLosses(0, 0))
    assert summary.verdict == "pass"
    said = text(summary)
    assert "400 of 400 requests were acknowledged, half of them within 1.5 s" in said
    assert "Acknowledged within, p99" in said
    assert "CapacityRequests" in said
    assert "Where the wait went" not in said
    assert "Backlog" not in said


PRICES = PriceFollowing(
    moves=3,
    dollars_per_hour=2.4,
    least_dollars_per_hour=2.0,
    dollars_ratio=1.2,
    periods={
        "move1": PricePeriod(
            begins_at_seconds=5,
            seconds=60,
            dollars_per_hour=2.4,
            least_dollars_per_hour=2.0,
            dollars_ratio=1.2,
        )
    },
)
INTERRUPTIONS = Interruptions(
    notices=2,
    machines=12,
    pods=60,
    evicted=59,
    lost=1,
    others_disturbed=0,
    never_bound=0,
    due_to_bind_seconds=Quantiles(8.0, 12.0, AtLeast(20.0), 21.5),
    bought_while_interrupted=0,
    joined_of_other_kinds=11,
)


def test_prices_that_moved_and_interruptions_have_a_sentence_and_their_numbers(whole: Run) -> None:
    """A run without either says nothing of them."""
    assert not {"Prices that moved", "Interrupted spot machines"} & {*headings(whole.summary)}
    said = msgspec.structs.replace(whole.summary, prices=PRICES, interruptions=INTERRUPTIONS)
    assert {"Prices that moved", "Interrupted spot machines"} <= {*headings(said)}
    assert view.prices_lead(PRICES) in text(said)
    assert "1.2 times the least" in view.prices_lead(PRICES)
    lead = view.interruptions_lead(INTERRUPTIONS)
    assert " ".join(lead.split()) in text(said)
    assert "60 pods had to leave, 1 of them only with their Node" in lead
    assert lead.endswith("The slowest replacement was bound after 21.5\u202fs.")
    nobody = msgspec.structs.replace(INTERRUPTIONS, pods=0, lost=0)
    assert "slowest" not in view.interruptions_lead(nobody)
    none_held = msgspec.structs.replace(PRICES, dollars_ratio=None)
    assert view.prices_lead(none_held).endswith("were held for no pods.")


def headings(summary: Summary) -> list[str]:
    """The headings of the page's sections."""
    return [unescape(each) for each in re.findall(r"<h2>([^<]+)", render_page(summary, FILES))]


def test_each_worker_of_a_load_has_a_row(whole: Run) -> None:
    """A load that one process played has no such table."""
    worker = {"requestsSent": 1234, "maxLatenessSeconds": 0.25, "p99LatenessSeconds": None}
    load = {**whole.summary.load, "workers": {"host-7": worker}}
    said = text(msgspec.structs.replace(whole.summary, load=load))
    assert "Its workers" in said
    assert "host-7 1,234 \u2013 \u2013 \u2013 0.250" in said
    assert "Its workers" not in text(whole.summary)
