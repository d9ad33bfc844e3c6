"""Whether the harness can be believed: what is done to a run shows in it, as much as it was done.

Real control planes throughout. A truth that does not hold is a fault of the measurement.
"""

from __future__ import annotations

import signal
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from controlplane.request import Binaries
from loaddriver.errors import ExitCode
from loaddriver.inject.late_requests import late_component
from loaddriver.judge.latency import observed_and_censored
from loaddriver.judge.percentiles import AtLeast, Quantile, estimate, lower_bound
from loaddriver.judge.sections import (
    hops_section,
    nodes_section,
    placement,
    pods_section,
    slice_of,
)
from loaddriver.judge.timeline import make_timeline
from loaddriver.record.hops import HOPS
from loaddriver.record.journal import read_journals
from loaddriver.record.nodes import node_lifetimes
from loaddriver.record.rows import PodRow, build_rows
from tests.truth.changed_roles import changed_python
from tests.truth.truth_rig import (
    BINDING_DELAY_SECONDS,
    CONFIGURE_DELAY_SECONDS,
    CREATE_DELAY_SECONDS,
    HOPELESS,
    HOPELESS_WORKLOAD,
    LATE_BINDINGS,
    LATE_CREATION_AND_ROLL_UP,
    LATE_REQUEST_AND_DECISION,
    REPLICA_SETS,
    Truth,
    WatchedTruth,
    add_unbindable_pods,
    is_held_up,
    median_hop,
    node_was_ready,
    slower_machines,
    twins,
    waited_for_node,
    waited_throughout,
    with_own_machine,
)

pytestmark = [pytest.mark.truth, pytest.mark.timeout(600)]

# Twice what a late request may be.
STARVED_SECONDS = 4.0


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Truth]:
    """Starts a run, of the truth profile if no other is named; each has results of its own."""

    def started(*arguments: str, **more: Any) -> Truth:
        return Truth(tmp_path_factory.mktemp("truth"), *arguments, **more)

    return started


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory, binaries: Binaries) -> WatchedTruth:
    """A run, and what a second recorder made of it that loses every hundredth watch event."""
    assert binaries
    return WatchedTruth(tmp_path_factory.mktemp("truth"))


@pytest.fixture(scope="session")
def plain(start: Callable[..., Truth]) -> Truth:
    """The run that others are compared with: nothing was done to it."""
    return start().finished()


@pytest.fixture(scope="session")
def again(start: Callable[..., Truth]) -> Truth:
    """The same build, profile and seed once more."""
    return start().finished()


@pytest.fixture(scope="session")
def slow_binding(
    tmp_path_factory: pytest.TempPathFactory, binaries: Binaries, start: Callable[..., Truth]
) -> Truth:
    """A run with half of its bindings held up on their way to the API server."""
    folder, seconds = tmp_path_factory.mktemp("slow"), BINDING_DELAY_SECONDS
    late_component(folder, binaries.kube_scheduler, "POST", LATE_BINDINGS, seconds)
    return start("--binaries", str(folder)).finished()


@pytest.fixture(scope="session")
def apart(start: Callable[..., Truth]) -> Truth:
    """The run to which late ones of that plan are compared: each kind of pods has its machines."""
    return start(profile="apart").finished()


@pytest.fixture(scope="session")
def late_creation_and_roll_up(
    tmp_path_factory: pytest.TempPathFactory, binaries: Binaries, start: Callable[..., Truth]
) -> Truth:
    """The plan of `apart`, with ReplicaSets that are created late, and an operator that hears of
    requests late.
    """
    delays = LATE_CREATION_AND_ROLL_UP
    python = changed_python(tmp_path_factory.mktemp("late"), {"late-requests": delays["rolledUp"]})
    folder, component = tmp_path_factory.mktemp("slow"), binaries.kube_controller_manager
    late_component(folder, component, "POST", REPLICA_SETS, delays["arrived"])
    return start("--binaries", str(folder), profile="apart", python=python).finished()


@pytest.fixture(scope="session")
def late_request_and_decision(
    tmp_path_factory: pytest.TempPathFactory, start: Callable[..., Truth]
) -> Truth:
    """The plan of `apart`, with a pod controller that hears of pods late, and a shard that decides
    on old demand.
    """
    delays = LATE_REQUEST_AND_DECISION
    late = {"late-pods": delays["seen"], "late-demand": delays["decided"]}
    python = changed_python(tmp_path_factory.mktemp("late"), late)
    return start(profile="apart", python=python).finished()


@pytest.fixture(scope="session")
def slow_provider(start: Callable[..., Truth]) -> Truth:
    """The same plan, with machines that take longer to be created and to be configured."""
    return start(*slower_machines()).finished()


@pytest.fixture(scope="session")
def unbindable(start: Callable[..., Truth]) -> Truth:
    """A run in whose soak some pods came that no machine can ever hold."""
    run = start()
    run.await_line("  soak")
    add_unbindable_pods(run)
    return run.finished()


def test_a_late_binding_is_the_schedulers_where_pods_found_room(slow_binding: Truth) -> None:
    """Pods whose binding is held up for three seconds have a `scheduled` that much longer, within a
    tenth, than the others of their run, and no other hop at all.
    """
    rows = node_was_ready(slow_binding.rows)
    late = [row for row in rows if is_held_up(row.name)]
    prompt = [row for row in rows if not is_held_up(row.name)]
    assert min(len(late), len(prompt)) >= 30
    assert_only_scheduled(growth(prompt, late))


def test_a_late_binding_is_the_schedulers_where_pods_waited_for_a_node(slow_binding: Truth) -> None:
    """They have a `scheduled` that much longer than others of their object on their machine, and
    all other hops as these have them. (Over all machines, halves differ by what these took.)
    """
    pairs = twins(waited_for_node(slow_binding.rows), is_held_up)
    assert len(pairs) >= 30
    each = [growth(prompt, late) for prompt, late in pairs]
    assert_only_scheduled({hop: statistics.median(one[hop] for one in each) for hop in HOPS})


def assert_only_scheduled(grown: Mapping[str, float]) -> None:
    """The delay, and it alone."""
    assert grown["scheduled"] == pytest.approx(BINDING_DELAY_SECONDS, rel=0.1)
    others = {hop: grown[hop] for hop in HOPS if hop != "scheduled"}
    assert others == pytest.approx(dict.fromkeys(others, 0), abs=BINDING_DELAY_SECONDS / 10)


def test_a_slow_provider_is_seen_where_it_is_slow(plain: Truth, slow_provider: Truth) -> None:
    """Delays in creating and in configuring a machine appear in `provisioned` and in `nodeReady`,
    each as itself, within a tenth.
    """
    before, after = waited_throughout(plain.rows), waited_throughout(slow_provider.rows)
    assert min(len(before), len(after)) >= 30
    grown = growth(before, after)
    assert grown["provisioned"] == pytest.approx(CREATE_DELAY_SECONDS, rel=0.1)
    assert grown["nodeReady"] == pytest.approx(CONFIGURE_DELAY_SECONDS, rel=0.1)
    most = CREATE_DELAY_SECONDS / 10
    assert grown["seen"] == pytest.approx(0, abs=most)
    assert grown["rolledUp"] == pytest.approx(0, abs=most)
    assert grown["scheduled"] == pytest.approx(0, abs=most)


def test_a_late_creation_and_a_late_roll_up_are_hops_of_their_own(
    apart: Truth, late_creation_and_roll_up: Truth
) -> None:
    """What a controller puts off before a pod exists is `arrived`, what an operator puts off is
    `rolledUp`, each within a tenth, and no other hop changes.
    """
    assert_grown(apart, late_creation_and_roll_up, LATE_CREATION_AND_ROLL_UP)


def test_a_late_request_and_a_late_decision_are_hops_of_their_own(
    apart: Truth, late_request_and_decision: Truth
) -> None:
    """What the pod controller puts off is `seen`, what the shard puts off after it has accepted a
    roll-up is `decided`, each within a tenth, and no other hop changes.
    """
    assert_grown(apart, late_request_and_decision, LATE_REQUEST_AND_DECISION)


def assert_grown(plain: Truth, late: Truth, delays: Mapping[str, float]) -> None:
    """Each delay in its hop, and nothing in any other."""
    before, after = with_own_machine(plain.rows), with_own_machine(late.rows)
    assert min(len(before), len(after)) >= 30
    grown = growth(before, after)
    expected = {hop: delays.get(hop, 0.0) for hop in HOPS}
    smallest = min(delays.values())
    assert grown == {
        hop: pytest.approx(expected[hop], abs=(expected[hop] or smallest) / 10) for hop in HOPS
    }


def growth(before: Sequence[PodRow], after: Sequence[PodRow]) -> dict[str, float]:
    """By how many seconds the median of each hop has grown."""
    return {hop: median_hop(after, hop) - median_hop(before, hop) for hop in HOPS}


def test_pods_that_never_bind_make_the_result_worse(unbindable: Truth) -> None:
    """Each of them raises every quantile or leaves it, and enough of them leave only a bound."""
    never = [row for row in unbindable.rows if row.workload == HOPELESS_WORKLOAD]
    others = [row for row in unbindable.rows if row.workload != HOPELESS_WORKLOAD]
    assert len(never) == HOPELESS
    assert all(row.bound_micros is None for row in never)
    steps = [
        slice_of([*others, *never[:count]]).due_to_bind_seconds for count in range(HOPELESS + 1)
    ]
    for quantile in ("p50", "p90", "p99", "max"):
        values = [size(getattr(step, quantile)) for step in steps]
        assert values == sorted(values), quantile
    assert isinstance(steps[-1].p99, AtLeast)
    guesses = [
        estimate(*observed_and_censored([*others, *never[:count]]), 0.99) or 0.0
        for count in range(HOPELESS + 1)
    ]
    assert guesses == sorted(guesses)
    assert guesses[-1] > guesses[0]
    assert unbindable.whole.due_to_bind_seconds == steps[-1]


def size(quantile: Quantile) -> tuple[bool, float]:
    """For comparing: a bound is worse than any number, and a higher bound worse than a lower."""
    return isinstance(quantile, AtLeast), lower_bound(quantile) or 0.0


def test_what_the_watch_loses_changes_no_number(watched: WatchedTruth) -> None:
    """Every stamp of every pod, and all that is computed from them, is the same to the microsecond
    for a recorder that never received one in a hundred watch events.
    """
    assert watched.dropped >= 5
    observed, summary = watched.observed, watched.run.whole
    journal = read_journals([watched.run.folder / "logs" / "machines.jsonl"])
    # When a pod was due is the load driver's to tell, not a recorder's.
    due = {row.uid: row.due_micros for row in watched.run.rows}
    rows = [replace(row, due_micros=due.get(row.uid)) for row in build_rows([observed], journal)]
    assert [timeless(row) for row in rows] == [timeless(row) for row in watched.run.rows]
    assert slice_of(rows).bind_latency_seconds == summary.bind_latency_seconds
    assert hops_section(rows) == summary.hops_seconds
    assert placement(rows) == summary.placement
    assert pods_section(summary.pods.planned, rows) == summary.pods
    lifetimes = [lifetime for of_name in node_lifetimes(observed).values() for lifetime in of_name]
    timeline = make_timeline(rows, lifetimes, ended_micros(watched.run))
    assert timeline == summary.timeline
    assert nodes_section(lifetimes, timeline) == summary.nodes


def timeless(row: PodRow) -> PodRow:
    """Without the moment at which the two recorders were told to stop."""
    return replace(row, observed_until_micros=0)


def ended_micros(run: Truth) -> int:
    """The end of the run as its summary has it."""
    spans = run.whole.run
    return round((spans.started_unix_seconds + spans.duration_seconds) * 1e6)


def test_a_starved_driver_voids_its_run(start: Callable[..., Truth]) -> None:
    """A driver that gets no CPU for seconds sends late; what was measured is not the plan."""
    run = start()
    run.await_line("  soak")
    (locust,) = (process for process in run.processes() if "locust" in process.cmdline())
    for _ in range(3):
        locust.send_signal(signal.SIGSTOP)
        time.sleep(STARVED_SECONDS)
        locust.send_signal(signal.SIGCONT)
        time.sleep(1)
    run.finished()
    assert run.code == ExitCode.INVALID_RUN, run.output
    assert run.whole.verdict == "invalid"
    assert any("late" in sentence for sentence in run.whole.why), run.whole.why


@pytest.mark.parametrize("placed", ["nodeWasReady", "waitedForNode"])
def test_two_runs_of_one_build_agree(plain: Truth, again: Truth, placed: str) -> None:
    """Same build, profile and seed: the plan is the same to the byte, medians differ by less than a
    quarter or 50 ms, and what one run takes for its p99 is not below what the other says it is at
    least. (The machine's speed is one sample a run, so the intervals of medians need not meet.)
    """
    assert {plain.whole.verdict, again.whole.verdict} == {"pass"}
    plans = [(run.folder / "plan.jsonl").read_bytes() for run in (plain, again)]
    assert plans[0] == plans[1]
    one, other = (run.whole.placement[placed].due_to_bind_seconds for run in (plain, again))
    assert one.p50 == pytest.approx(other.p50, rel=0.25, abs=0.05)
    for told, run in ((one, again), (other, plain)):
        found = estimate(placement_waits(run, placed), (), 0.99)
        assert (lower_bound(told.p99_interval[0]) or 0.0) <= (found or 0.0)


def placement_waits(run: Truth, placed: str) -> list[float]:
    """The waits of the pods that were placed so."""
    of = {"nodeWasReady": node_was_ready, "waitedForNode": waited_for_node}[placed]
    return [row.waited_seconds for row in of(run.rows)]
