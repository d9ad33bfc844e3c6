"""Bursts, demand steps, churn bursts and lifetimes: times, amounts and independence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaddriver.errors import ProfileError
from loaddriver.plan.files import load_plan, plan_bytes, save_plan
from loaddriver.plan.make import make_plan
from loaddriver.plan.records import (
    ChurnEvent,
    CreateEvent,
    DeleteEvent,
    Plan,
    ScaleEvent,
    Workload,
)
from loaddriver.plan.shapes import demand_after
from loaddriver.plan.workloads import draw_workloads
from loaddriver.profile.loading import Profile, load_profile
from tests.loaddriver.load_rig import PROFILES, copied_profiles, planned, shipped

HALF_AND_BACK = (
    "demandSteps=[{phase: soak, atSeconds: 15, factor: 0.5},"
    "{phase: soak, atSeconds: 35, factor: 1}]"
)
BURST = (
    "bursts=[{phase: soak, atSeconds: 5, archetype: memory-cache, pods: 60, durationSeconds: 20}]"
)
SHAPED = (BURST, HALF_AND_BACK, "soak.churnBurst={everySeconds: 10, seconds: 1, factor: 4}")


Kind = TypeVar("Kind", CreateEvent, ScaleEvent, DeleteEvent, ChurnEvent)


def pods_over_time(plan: Plan, origin: str = "") -> Iterator[tuple[int, float, int]]:
    """(step, offset, pods of all workloads or of one origin) at each change."""
    origins = {(each.cluster, each.name): each.origin for each in plan.workloads}
    now: Counter[tuple[int, str]] = Counter()
    for level in plan.levels:
        key = level.cluster, level.workload
        if origin in ("", origins[key]):
            now[key] = level.replicas
            yield level.step, level.offset_seconds, now.total()


def pods_at(plan: Plan, seconds: float) -> int:
    """The planned pods at a time of the soak."""
    soak = plan.steps[-1].number
    known = [p for step, at, p in pods_over_time(plan) if (step, at) <= (soak, seconds)]
    return known[-1]


def of_kind(plan: Plan, kind: type[Kind]) -> list[Kind]:
    return [event for event in plan.events if isinstance(event, kind)]


shapes = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 50),
        "clusters": st.integers(1, 3),
        "churn": st.integers(0, 5),
        "factor": st.sampled_from([0, 0.25, 0.5, 0.9, 1, 1.3, 2]),
        "pods": st.integers(3, 80).filter(lambda pods: -(-pods // 5) <= pods // 3),
        "phase": st.sampled_from(["ramp", "soak"]),
        "mode": st.sampled_from(["pods", "cr"]),
    }
)


def bent(shape: dict[str, object]) -> Profile:
    return shipped(
        "smoke",
        "soak.seconds=60",
        "anchors=off",
        "ramp.pacing=fixed",
        "ramp.stepSeconds=10",
        f"clusters={shape['clusters']}",
        f"soak.churnPodsPerSecond={shape['churn']}",
        f"load.mode={shape['mode']}",
        f"demandSteps=[{{phase: soak, atSeconds: 20, factor: {shape['factor']}}}]",
        f"bursts=[{{phase: {shape['phase']}, atSeconds: 2, archetype: memory-cache, "
        f"pods: {shape['pods']}, durationSeconds: 9}}]",
        seed=int(str(shape["seed"])),
    )


@settings(max_examples=25)
@given(shapes)
def test_any_plan_is_exact_repeatable_and_within_its_phases(shape: dict[str, object]) -> None:
    """Sums are those of the profile, bytes those of the seed, and no request leaves its phase."""
    profile = bent(shape)
    plan = make_plan(profile)
    assert plan_bytes(plan) == plan_bytes(make_plan(profile))
    base = profile.settings.pods
    assert sum(step.pods for step in plan.steps) == base
    pods = int(str(shape["pods"]))
    assert max(p for _, _, p in pods_over_time(plan, "burst-0")) == pods
    assert list(pods_over_time(plan, "burst-0"))[-1][2] == 0
    per_cluster = round(float(str(shape["factor"])) * profile.settings.pods_per_cluster)
    assert pods_at(plan, 59) == per_cluster * profile.settings.clusters
    seconds = {step.number: step.seconds for step in plan.steps}
    assert all(0 <= event.offset_seconds <= seconds[event.step] for event in plan.events)
    assert len({event.id for event in plan.events}) == len(plan.events)
    keys = [(event.step, event.offset_seconds) for event in plan.events]
    assert keys == sorted(keys)


def test_a_plan_with_shapes_reads_back_equal(tmp_path: Path) -> None:
    """All kinds of lines survive the file."""
    _, plan, _ = planned("dev-50", *SHAPED)
    kinds = {type(event) for event in plan.events}
    assert kinds == {CreateEvent, ScaleEvent, DeleteEvent, ChurnEvent}
    save_plan(plan, tmp_path / "plan.jsonl")
    assert load_plan(tmp_path / "plan.jsonl") == plan


@pytest.mark.parametrize("change", [BURST, HALF_AND_BACK, "soak.churnPodsPerSecond=5"])
def test_a_change_to_one_part_keeps_all_others(change: str) -> None:
    """So that two runs can be compared that differ in one thing."""
    _, calm, _ = planned("dev-50", "soak.churnPodsPerSecond=1")
    _, changed, _ = planned("dev-50", "soak.churnPodsPerSecond=1", change)
    ramp = [event for event in calm.events if 0 < event.step < calm.steps[-1].number]
    assert ramp == [event for event in changed.events if 0 < event.step < calm.steps[-1].number]
    if change == BURST:
        assert of_kind(calm, ChurnEvent) == of_kind(changed, ChurnEvent)
    if change == HALF_AND_BACK:
        before = [e for e in of_kind(changed, ChurnEvent) if e.offset_seconds < 15]
        assert before == of_kind(calm, ChurnEvent)[: len(before)] != []


def test_changing_the_churn_keeps_bursts_and_demand_steps() -> None:
    _, calm, _ = planned("dev-50", BURST, HALF_AND_BACK)
    _, busy, _ = planned("dev-50", BURST, HALF_AND_BACK, "soak.churnPodsPerSecond=9")
    assert calm.levels == busy.levels
    assert calm.workloads == busy.workloads


def test_half_the_demand_is_removed_and_comes_back() -> None:
    """Deployments are scaled; gangs and Jobs are deleted and recreated under new names."""
    _, plan, _ = planned("dev-50", HALF_AND_BACK)
    workloads = {(each.cluster, each.name): each for each in plan.workloads}
    assert (pods_at(plan, 14), pods_at(plan, 34), pods_at(plan, 55)) == (5000, 2500, 5000)
    scaled = {workloads[event.cluster, event.name] for event in of_kind(plan, ScaleEvent)}
    assert scaled == {w for w in workloads.values() if not w.atomic}
    gone = {workloads[event.cluster, event.name] for event in of_kind(plan, DeleteEvent)}
    back = [each for each in plan.workloads if each.origin == "demand-1"]
    assert all(each.atomic for each in gone)
    assert sorted(each.replicas for each in back) == sorted(each.replicas for each in gone)
    assert all(each.group == (each.name if each.topology else None) for each in back)
    assert {each.name for each in back}.isdisjoint(each.name for each in gone)


@cache
def smoke_workloads() -> tuple[Workload, ...]:
    return draw_workloads(shipped("smoke"), 0)


@given(st.lists(st.sampled_from([0, 0.3, 0.5, 0.8, 1, 1.5, 2.5]), min_size=2, max_size=2))
def test_more_demand_never_removes_a_gang(factors: list[float]) -> None:
    """The larger of two factors keeps what the smaller keeps, to minimize disruption."""
    base = smoke_workloads()
    less, more = (demand_after(base, factor) for factor in sorted(factors))
    atomic = {slot for slot in less if base[slot[0]].atomic}
    assert atomic <= more.keys()
    assert sum(less.values()) <= sum(more.values())


def test_one_gang_of_a_burst_is_in_one_cluster() -> None:
    """A burst meant as one large gang must not become one in every cluster."""
    large = (
        "{phase: soak, atSeconds: 1, archetype: gpu-training-large, pods: 100, durationSeconds: 9}"
    )
    _, plan, need = planned("dev-50", "clusters=3", f"bursts=[{large}]")
    [burst] = [each for each in plan.workloads if each.origin == "burst-0"]
    assert (burst.replicas, burst.topology, burst.step_label) == (100, "sameZone", "burst-0")
    namespaces = {e.cluster for e in of_kind(plan, CreateEvent) if e.name == burst.namespace}
    assert namespaces == {burst.cluster}
    size = next(each for each in need.sizes if each.archetype == "gpu-training-large")
    assert size.machines_claimed == 100


def test_a_burst_of_the_ramp_moves_with_its_step() -> None:
    """An adaptive ramp may wait, so bursts count from the release of their step."""
    ramp = "{phase: ramp, atSeconds: 17, archetype: tiny-stateless, pods: 9, durationSeconds: 5}"
    _, plan, _ = planned("dev-50", "ramp.stepSeconds=10", f"bursts=[{ramp}]")
    coming, going = (
        [e for e in plan.events if isinstance(e, kind) and "-b0-" in e.id]
        for kind in (CreateEvent, DeleteEvent)
    )
    assert {(event.step, int(event.offset_seconds)) for event in coming} == {(2, 7)}
    assert {(event.step, int(event.offset_seconds)) for event in going} == {(3, 2)}


def test_demand_is_counted_at_the_peak_of_each_pod_size() -> None:
    """A burst needs machines although it ends before the run."""
    _, _, calm = planned("dev-50")
    burst = BURST.replace("pods: 60", "pods: 900")
    _, plan, need = planned("dev-50", burst, HALF_AND_BACK)
    assert pods_at(plan, 59) == 5000
    cache, calm_cache = (
        next(size for size in each.sizes if size.archetype == "memory-cache")
        for each in (need, calm)
    )
    assert cache.pods == calm_cache.pods + 900
    assert cache.machines_claimed > calm_cache.machines_claimed
    others = [size for size in need.sizes if size.archetype != "memory-cache"]
    assert others == [size for size in calm.sizes if size.archetype != "memory-cache"]
    grown = "demandSteps=[{phase: soak, atSeconds: 15, factor: 2}]"
    assert planned("dev-50", grown)[2].pods == 10_000


def test_churn_selects_only_existing_pods() -> None:
    """Not of objects that a demand step removed or has just recreated."""
    _, plan, _ = planned("dev-50", HALF_AND_BACK, "soak.churnPodsPerSecond=40")
    history: dict[tuple[int, str], list[tuple[float, int]]] = {}
    for level in plan.levels:
        at = level.offset_seconds if level.step == plan.steps[-1].number else -1.0
        history.setdefault((level.cluster, level.workload), []).append((at, level.replicas))
    churned = [event for event in plan.events if isinstance(event, ChurnEvent)]
    assert len(churned) == 2400
    for event in churned:
        there = history[event.cluster, event.workload]
        for moment in (event.offset_seconds, event.offset_seconds - 10):
            size = [replicas for at, replicas in there if at <= max(moment, -1.0)]
            assert event.rank < size[-1]


def test_churn_bursts_keep_the_mean_rate() -> None:
    """A tenth of the time has far more than a tenth of the deletions."""
    calm, dense = (
        [e.offset_seconds for e in of_kind(planned("dev-50", *extra)[1], ChurnEvent)]
        for extra in (
            ("soak.churnPodsPerSecond=40",),
            (
                "soak.churnPodsPerSecond=40",
                "soak.churnBurst={everySeconds: 10, seconds: 1, factor: 20}",
            ),
        )
    )
    assert len(calm) == len(dense) == 2400

    def busiest(times: list[float]) -> int:
        seconds = Counter(int(time) for time in times)
        return sum(number for _, number in seconds.most_common(6))

    assert busiest(calm) < 0.2 * 2400 < 0.3 * 2400 < busiest(dense)


def test_lifetimes_are_part_of_the_churn_of_their_archetype(tmp_path: Path) -> None:
    """pods / meanLifetime deletions per second; the rest of the churn is of other archetypes."""
    folder = copied_profiles(tmp_path)
    catalog = (folder / "catalog.yaml").read_text()
    mortal = catalog.replace(
        "    kind: StatefulSet\n", "    kind: StatefulSet\n    meanLifetimeSeconds: 400\n", 1
    )
    (folder / "catalog.yaml").write_text(mortal)
    plan = make_plan(load_profile("dev-50", folder, ("soak.churnPodsPerSecond=3",)))
    churned = Counter(
        e.workload.rsplit("-", 1)[0] for e in plan.events if isinstance(e, ChurnEvent)
    )
    caches = sum(w.replicas for w in plan.workloads if w.archetype == "memory-cache")
    assert churned.total() == 180
    assert churned["memory-cache"] == pytest.approx(60 * caches / 400, abs=2)
    with pytest.raises(ProfileError, match=r"memory-cache alone delete 1\.95 pods per second"):
        load_profile("dev-50", folder, ("soak.churnPodsPerSecond=1",))


def test_a_knee_ramp_increases_its_rate_linearly() -> None:
    """Step n has n times the rate of the first, and the sum is exact."""
    profile = shipped("knee-50")
    steps = [step for step in make_plan(profile).steps if step.phase == "ramp"]
    assert sum(step.pods for step in steps) == profile.settings.pods
    for step in steps:
        assert step.pods_per_second == pytest.approx(50 * step.number, abs=45)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        (BURST.replace("memory-cache", "memory-cash"), "did you mean memory-cache?"),
        (BURST.replace("pods: 60", "pods: 2"), "write 3"),
        (BURST.replace("durationSeconds: 20", "durationSeconds: 200"), "soak, which lasts 60 s"),
        (BURST.replace("phase: soak", "phase: setup"), "bursts[0].phase = 'setup'"),
        (BURST.replace("pods: 60", "pod: 60"), "bursts[0].pod unknown key; did you mean pods?"),
        (
            HALF_AND_BACK.replace("35", "95"),
            "atSeconds = 95: must be less than the soak, 60 s",
        ),
        (HALF_AND_BACK.replace("35", "12"), "must be later than the previous step"),
        (HALF_AND_BACK.replace("35", "15.1"), "the previous step takes until 19."),
        (HALF_AND_BACK.replace("35", "59.9"), "after the end of its phase"),
        (HALF_AND_BACK.replace("phase: soak", "phase: ramp"), "demandSteps[0].phase = 'ramp'"),
        ("soak.churnBurst={everySeconds: 5, seconds: 5, factor: 2}", "or the bursts overlap"),
        ("soak.churnBurst={everySeconds: 5, seconds: 1, factor: 1}", "churnBurst.factor = 1"),
        ("load={mode: cr}", "with load.mode: cr there are no pods"),
        ("ramp.pacing=knee", "write soak.seconds: 0"),
        ("fleet.machinesPerRack=4", "a gpu-training-small gang of 8 pods needs 8 machines"),
    ],
)
def test_invalid_bursts_and_demand_steps_are_rejected_with_a_hint(
    override: str, expected: str
) -> None:
    with pytest.raises(ProfileError) as caught:
        make_plan(load_profile("dev-50", PROFILES, (override,)))
    assert expected in str(caught.value)


def test_a_burst_of_gangs_that_no_rack_holds_is_rejected() -> None:
    """Also of an archetype without weights."""
    burst = BURST.replace("memory-cache", "gpu-training-medium").replace("60", "16")
    with pytest.raises(ProfileError, match="gpu-training-medium gang of 16 pods needs 16 machines"):
        load_profile("dev-50", PROFILES, (burst, "fleet.machinesPerRack=8"))


def test_atomic_workloads_are_gangs_jobs_and_bursts() -> None:
    """A Deployment of the ramp is scaled."""
    plan = planned("dev-50", BURST)[1]
    kinds: dict[str, set[bool]] = {}
    for each in plan.workloads:
        kinds.setdefault(each.archetype, set()).add(each.atomic)
    assert kinds["tiny-stateless"] == {False}
    assert kinds["cpu-batch"] == kinds["memory-cache"] == {True}
