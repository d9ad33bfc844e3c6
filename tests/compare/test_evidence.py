"""Results are compared only as their runs left them, and only with their like."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from loaddriver.compare.evidence import (
    Evidence,
    IncomparableError,
    check,
    read_evidence,
    slower,
)
from loaddriver.compare.measures import BIGFLEET, REFERENCES, cpu_part, run_measures
from loaddriver.errors import ExitCode
from loaddriver.judge.schema import Summary
from loaddriver.record.provenance import MachineIdentity
from loaddriver.record.rows import PodRow
from loaddriver.report.results import seal_results, write_results
from tests.judge.judge_rig import row
from tests.report.report_rig import Run, make_run


@pytest.fixture(scope="module")
def made() -> Run:
    """A run in which every pod was bound."""
    return make_run(200)


def stored(folder: Path, made: Run, **changes: Any) -> Path:
    """Its sealed results, with other fields of the summary."""
    (folder / "logs").mkdir(parents=True)
    summary = msgspec.structs.replace(made.summary, **changes)
    write_results(folder, summary, made.rows)
    seal_results(folder, summary)
    return folder


@pytest.fixture(scope="module")
def sealed(made: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its sealed results."""
    return stored(tmp_path_factory.mktemp("sealed") / "r1", made)


@pytest.fixture
def pair(sealed: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Two results folders of one plan, a test's own."""
    one, other = (shutil.copytree(sealed, tmp_path / side / "r1") for side in "ab")
    return one, other


def checked(*folders: Path, **more: Any) -> list[str]:
    return check([read_evidence(folder) for folder in folders], **more)


def test_untouched_runs_of_one_plan_are_comparable(pair: tuple[Path, Path]) -> None:
    assert checked(*pair) == []


def damage_a_byte(folder: Path) -> None:
    """Change one byte of the rows' gzip header, which no reader needs."""
    path = folder / "pods.csv.gz"
    content = bytearray(path.read_bytes())
    content[9] ^= 1
    path.write_bytes(content)


def truncate(folder: Path) -> None:
    path = folder / "junit.xml"
    path.write_bytes(path.read_bytes()[:-20])


def remove(folder: Path) -> None:
    (folder / "junit.xml").unlink()


@pytest.mark.parametrize(
    ("damage", "named"),
    [(damage_a_byte, "pods.csv.gz"), (truncate, "junit.xml"), (remove, "junit.xml")],
)
def test_changed_results_are_refused_by_name(
    pair: tuple[Path, Path], damage: Any, named: str
) -> None:
    """One byte suffices; the error names the folder and the file, and has exit code 2."""
    damage(pair[1])
    with pytest.raises(IncomparableError) as error:
        checked(*pair)
    assert error.value.exit_code == ExitCode.USAGE
    assert str(pair[1]) in str(error.value)
    assert named in str(error.value)


def test_force_lets_it_pass_with_a_warning(pair: tuple[Path, Path]) -> None:
    damage_a_byte(pair[1])
    (warning,) = checked(*pair, force=True)
    assert warning.startswith("Forced: ")
    assert "pods.csv.gz" in warning


def test_a_manifest_that_cannot_be_read_proves_nothing(pair: tuple[Path, Path]) -> None:
    path = pair[0] / "manifest.json"
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(IncomparableError, match=r"no manifest\.json that can be read"):
        checked(*pair)


def other_source(made: Run, **changes: Any) -> Any:
    assert made.summary.provenance is not None
    return msgspec.structs.replace(made.summary.provenance, **changes)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"inputs": {"plan": 64 * "0"}}, "another plan"),
        ({"code": {"loaddriver": 64 * "0"}}, "another harness"),
        ({"dependencies": 64 * "0"}, "another harness"),
        ({"machine": MachineIdentity(id="other", calibration_seconds=0.1)}, "another machine"),
    ],
)
def test_other_inputs_are_refused_by_name(
    made: Run, tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    one = stored(tmp_path / "one", made)
    other = stored(tmp_path / "other", made, provenance=other_source(made, **changes))
    with pytest.raises(IncomparableError, match=named):
        checked(one, other)
    assert checked(one, other, force=True)


def test_a_run_of_unknown_origin_is_refused(made: Run, tmp_path: Path) -> None:
    """Two of them share all that is known of them, which is nothing."""
    folders = [stored(tmp_path / name, made, provenance=None) for name in ("one", "other")]
    with pytest.raises(IncomparableError, match="no provenance"):
        checked(*folders)


def test_a_declared_difference_is_what_is_compared(made: Run, tmp_path: Path) -> None:
    """Settings of BigFleet may differ where they are the question, and the plan still may not."""
    inputs = {"plan": 64 * "b", "profile": 64 * "0"}
    one = stored(tmp_path / "one", made)
    other = stored(tmp_path / "other", made, provenance=other_source(made, inputs=inputs))
    with pytest.raises(IncomparableError, match="another profile's settings"):
        checked(one, other)
    assert checked(one, other, declared=["profile's settings"]) == []


def test_another_system_under_test_is_no_difference(made: Run, tmp_path: Path) -> None:
    """It is what is compared."""
    assert made.summary.provenance is not None
    code = {**made.summary.provenance.code, "bigfleet": 64 * "0"}
    one = stored(tmp_path / "one", made)
    other = stored(
        tmp_path / "other", made, provenance=other_source(made, code=code, revision="beef")
    )
    assert checked(one, other) == []


def with_calibration(found: Evidence, made: Run, seconds: float) -> Evidence:
    machine = MachineIdentity(id="same", calibration_seconds=seconds)
    source = other_source(made, machine=machine)
    return replace(found, summary=msgspec.structs.replace(found.summary, provenance=source))


def test_a_machine_that_is_no_longer_as_fast_is_another_machine(
    made: Run, pair: tuple[Path, Path]
) -> None:
    """A stored baseline is of use only where a fixed task takes the same CPU time."""
    base, head = (read_evidence(folder) for folder in pair)
    base = with_calibration(base, made, 0.050)
    assert slower([base], [with_calibration(head, made, 0.054)]) == []
    (sentence,) = slower([base], [with_calibration(head, made, 0.060)])
    assert "60.0 ms" in sentence
    assert "50.0 ms" in sentence


def test_the_six_endpoints_are_read_from_what_runs_write(made: Run, tmp_path: Path) -> None:
    """Each is that of the summary, and none is missing; a decision's CPU needs the cycles."""
    components = {"durations": {"shardCycle": {"count": 100.0}}}
    found = read_evidence(stored(tmp_path / "run", made, components=components)).measures
    assert found is not None
    hops, use = made.summary.hops_seconds, made.summary.resources
    assert use is not None
    assert found.values["machines"] == hops["provisioned"].mean + hops["nodeReady"].mean
    assert 0 < found.values["scheduled"] < 2 * hops["scheduled"].mean
    cpu = {
        cpu_part(name): 1000 * (each.cpu_seconds_per_pod or 0)
        for name, each in use.components.items()
    }
    assert found.values["bigfleetCpu"] == pytest.approx(
        sum(cpu.get(cpu_part(name), 0) for name in BIGFLEET)
    )
    assert found.values["apiCpu"] == pytest.approx(cpu["kube-apiserver.cpu"] + cpu["etcd.cpu"])
    assert found.values["shardCpu"] == pytest.approx(10 * use.components["shard"].cpu_seconds)
    assert found.values["dueToBind"] > 0
    assert len(found.values) == 6


def test_what_a_run_did_not_measure_is_not_there(made: Run, tmp_path: Path) -> None:
    """Without CPU by process there are no CPU endpoints, and no zeros in their place."""
    found = read_evidence(stored(tmp_path / "run", made, resources=None)).measures
    assert found is not None
    assert found.values.keys() == {"dueToBind", "machines", "scheduled"}


def test_a_void_run_has_no_measures_but_a_reason(made: Run, tmp_path: Path) -> None:
    found = read_evidence(
        stored(tmp_path / "run", made, verdict="invalid", why=["others took the CPU"])
    )
    assert found.measures is None
    assert found.void_reason == "others took the CPU"


def test_waits_are_by_object_and_a_pod_that_never_bound_counts(made: Run) -> None:
    """As long as it was seen to wait; what the plan did not ask for is left out."""
    rows = [
        row("a", bound=1.0, workload="web", due_micros=row("a").created_micros),
        row("b", workload="web", due_micros=row("b").created_micros),
        row("c", bound=50.0, workload="web"),
    ]
    found = run_measures(made.summary, rows).waits["dueToBind"]
    assert found == {"c0/web": pytest.approx(math.log(100) / 2)}


def test_a_few_pods_that_wait_for_seconds_do_not_decide_how_fast_scheduling_is(
    made: Run,
) -> None:
    """A hundredth of the pods is a tenth of the mean seconds, and another hundredth in each run."""
    rows = [scheduled(str(number), 0.1) for number in range(99)]
    few, many = ([*rows, scheduled("late", seconds)] for seconds in (0.1, 2.0))
    before, after = (run_measures(made.summary, each).values["scheduled"] for each in (few, many))
    assert before == pytest.approx(0.1)
    assert after == pytest.approx(before, rel=0.05)


def scheduled(uid: str, seconds: float) -> PodRow:
    """A pod of its own workload whose wait is its scheduling; the plan asked for it at 0."""
    return row(uid, bound=seconds, due_micros=row(uid).created_micros)


def never_bound(summary: Summary) -> int:
    return summary.pods.never_bound + summary.pods.never_created


def test_events_are_counted_by_run(tmp_path: Path) -> None:
    lost = make_run(200, lost=3)
    found = read_evidence(stored(tmp_path / "run", lost)).measures
    assert found is not None
    assert found.events["neverBound"] == never_bound(lost.summary) > 0


def test_bigfleets_controllers_are_a_reference_of_their_code_and_settings(
    made: Run, tmp_path: Path
) -> None:
    """A side with another build, or with other settings, has another one."""
    source, resources = made.summary.provenance, made.summary.resources
    assert source is not None
    assert resources is not None
    used = {**resources.components, "operator": resources.components["shard"]}
    measured = msgspec.structs.replace(resources, components=used)
    source = msgspec.structs.replace(source, code={**source.code, "bigfleet": 64 * "a"})
    same, built, set_up = (
        read_evidence(stored(tmp_path / name, made, provenance=each, resources=measured)).measures
        for name, each in (
            ("same", source),
            ("built", msgspec.structs.replace(source, code={**source.code, "bigfleet": "x"})),
            ("set", msgspec.structs.replace(source, inputs={**source.inputs, "profile": "x"})),
        )
    )
    assert same is not None
    assert built is not None
    assert set_up is not None
    *_, controllers = REFERENCES
    assert len({each.shared[controllers] for each in (same, built, set_up)}) == 3
