"""A session plays pairs until they tell enough, and can be broken off at any run."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from loaddriver.compare import session as sessions
from loaddriver.compare.comparison import Fact
from loaddriver.compare.evidence import Evidence, IncomparableError
from loaddriver.compare.exact import VOID_LIMIT
from loaddriver.compare.pool import together
from loaddriver.compare.session import Session
from loaddriver.compare.state import (
    SESSION,
    RunRecord,
    SessionSpec,
    SessionState,
    SideSpec,
    next_step,
    order,
    pairs,
    read_state,
    voids,
    write_state,
)
from loaddriver.errors import ExitCode, InfrastructureError, LoaddriverError, ProfileError
from loaddriver.record.provenance import MachineIdentity, Provenance
from tests.compare.compare_rig import noisy
from tests.run.run_rig import summary

BASE, HEAD = SideSpec(label="v1"), SideSpec(label="v2")


def no_facts() -> list[Fact]:
    """None were asked for."""
    return []


def spec(**more: Any) -> SessionSpec:
    known: dict[str, Any] = {"least_pairs": 6, "most_pairs": 16, "order_seed": 5, **more}
    return SessionSpec(
        profile="compare-50", seed=1, least_effect=1.1, base=BASE, head=HEAD, **known
    )


class BrokenOff(LoaddriverError):
    """The user's Ctrl-C."""

    exit_code = ExitCode.INTERRUPTED


@dataclass
class MadeUpRuns:
    """Runs that take no time. `void` are names of runs, as `03-head`, that are void; the session is
    broken off in the run that is the `broken_at`-th.
    """

    factors: dict[str, float] = field(default_factory=dict)
    deviation: float = 0.02
    void: set[str] = field(default_factory=set)
    broken_at: int = 0
    played: list[str] = field(default_factory=list)
    together: list[int] = field(default_factory=list)
    waits: int = 0
    sides: dict[Path, SideSpec] = field(default_factory=dict)

    def run(self, runs: Sequence[tuple[SideSpec, Path]]) -> list[Path]:
        self.together.append(len(runs))
        for spec, folder in runs:
            self.played.append(folder.name)
            if len(self.played) == self.broken_at:
                raise BrokenOff("interrupted")
            self.sides[folder] = spec
        return [folder for _, folder in runs]

    def wait_until_quiet(self) -> None:
        self.waits += 1

    def read(self, folder: Path) -> Evidence:
        if folder.name in self.void:
            found = msgspec.structs.replace(summary("invalid", 5), why=["others took the CPU"])
            return Evidence(folder, found, None)
        random = np.random.default_rng(zlib.crc32(folder.name.encode()))
        factors = self.factors if folder.name.endswith("head") else {}
        return Evidence(folder, summary(), noisy(random, self.deviation, **factors))


@pytest.fixture(autouse=True)
def no_manifests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up runs have no files; that these are checked is `test_evidence`'s."""
    monkeypatch.setattr(sessions, "check", lambda *_: [])


def started(folder: Path, runs: MadeUpRuns, state: SessionState | None = None) -> Session:
    said: list[str] = []
    found = state or SessionState(spec=spec())
    return Session(folder, found, runs, said.append, read=runs.read)


def test_equal_systems_end_at_a_look_and_are_not_worse(tmp_path: Path) -> None:
    """After the fewest pairs where noise is small; the first run is discarded."""
    runs = MadeUpRuns(deviation=0.01)
    found = started(tmp_path, runs).play(no_facts)
    assert (found.exit_code, found.pairs) == (ExitCode.PASS, 6)
    assert len(runs.played) == 1 + 2 * 6
    assert runs.played[0].startswith("00-")
    assert runs.waits == len(runs.played), "the load is checked before each run"


def test_noise_takes_all_pairs_and_settles_nothing(tmp_path: Path) -> None:
    runs = MadeUpRuns(deviation=0.5)
    found = started(tmp_path, runs).play(no_facts)
    assert (found.exit_code, found.pairs) == (ExitCode.NOT_ENOUGH_DATA, 16)


def test_a_regression_ends_the_session(tmp_path: Path) -> None:
    found = started(tmp_path, MadeUpRuns({"scheduled": 1.3})).play(no_facts)
    assert (found.exit_code, found.pairs) == (ExitCode.REGRESSION, 6)
    assert found.attributed == "scheduled"


def test_at_once_both_runs_of_a_pair_are_played_together(tmp_path: Path) -> None:
    """In random order of starting, the warm-up as well; the machine is idle before each pair."""
    runs = MadeUpRuns(deviation=0.5)
    state = SessionState(spec=spec(at_once=True))
    found = started(tmp_path, runs, state).play(no_facts)
    assert (found.pairs, found.pairing) == (16, "at once")
    assert runs.together == [2] * 17
    assert runs.waits == 17
    firsts = Counter(name.split("-")[1] for name in runs.played[::2])
    assert min(firsts["base"], firsts["head"]) >= 3


def test_at_once_a_pair_that_was_broken_off_is_played_again(tmp_path: Path) -> None:
    """Both of its runs, after a warm-up of both sides; none of it was recorded."""
    broken = MadeUpRuns(deviation=0.01, broken_at=8)
    with pytest.raises(BrokenOff):
        started(tmp_path, broken, SessionState(spec=spec(at_once=True))).play(no_facts)
    last = broken.played[-1][:2]
    assert all(run.pair < int(last) for run in read_state(tmp_path).runs)
    again = MadeUpRuns(deviation=0.01)
    found = started(tmp_path, again, read_state(tmp_path)).play(no_facts)
    assert {name[:7] for name in again.played[:2]} == {"warm-up"}
    assert {name[:2] for name in again.played[2:4]} == {last}
    assert (found.exit_code, found.pairs) == (ExitCode.PASS, 6)


def test_at_once_a_void_run_discards_the_other_one_too(tmp_path: Path) -> None:
    runs = MadeUpRuns(deviation=0.01, void={"02-head", "04-base", "04-head"})
    session = started(tmp_path, runs, SessionState(spec=spec(at_once=True)))
    found = session.play(no_facts)
    assert found.pairs == 6
    assert found.voids.base + found.voids.head == 2, "what disturbed both is one void, not two"
    assert all(base.pair not in (2, 4) for base, _ in pairs(session.state))


def test_pairs_at_once_are_a_pool_of_their_own(tmp_path: Path) -> None:
    """Their noise is another, so that they tell nothing of interleaved ones."""
    state = SessionState(spec=spec(at_once=True, inject="shard.cpu=+10%"))
    session = started(tmp_path, MadeUpRuns(), state)
    session.play(no_facts)
    found = session.pool()
    assert found.pairing == "at once"
    other = msgspec.structs.replace(found, pairing="interleaved")
    with pytest.raises(ProfileError, match="another pairing: at once and interleaved"):
        together([found, other])


def test_both_orders_occur_and_each_pair_has_both_sides(tmp_path: Path) -> None:
    runs = MadeUpRuns(deviation=0.5)
    started(tmp_path, runs).play(no_facts)
    played = runs.played[1:]
    firsts = Counter(name.split("-")[1] for name in played[::2])
    assert min(firsts["base"], firsts["head"]) >= 3
    assert all(
        {a[3:], b[3:]} == {"base", "head"} for a, b in zip(played[::2], played[1::2], strict=True)
    )


def test_orders_are_a_fair_coin() -> None:
    """Over many sessions each side is first as often; else a warm cache would be an effect."""
    firsts = Counter(order(spec(order_seed=seed), 1)[0] for seed in range(2000))
    assert 900 < firsts["base"] < 1100


def test_a_broken_off_session_goes_on_where_it_was(tmp_path: Path) -> None:
    """The pair that was broken off is played again, after a warm-up; the verdict is the same."""
    whole = started(tmp_path / "whole", prepared(tmp_path / "whole", 0)).play(no_facts)
    broken = prepared(tmp_path / "broken", 8)
    with pytest.raises(BrokenOff):
        started(tmp_path / "broken", broken).play(no_facts)
    again = prepared(tmp_path / "broken", 0)
    found = started(tmp_path / "broken", again, read_state(tmp_path / "broken")).play(no_facts)
    assert again.played[0].startswith("warm-up")
    last = broken.played[-1][:2]
    kept = [name for name in broken.played if not name.startswith(last)]
    assert [*kept, *again.played[1:]] == list(dict.fromkeys([*kept, *again.played[1:]]))
    assert sum(name.startswith(last) for name in again.played) == 2
    assert [each.base_runs for each in found.endpoints] == [
        each.base_runs for each in whole.endpoints
    ]


def prepared(folder: Path, broken_at: int) -> MadeUpRuns:
    folder.mkdir(exist_ok=True)
    return MadeUpRuns(broken_at=broken_at, deviation=0.03)


def test_a_void_discards_its_pair_and_counts_for_its_side(tmp_path: Path) -> None:
    first, second = order(spec(), 2)
    runs = MadeUpRuns(deviation=0.01, void={f"02-{first}", f"04-{order(spec(), 4)[1]}"})
    session = started(tmp_path, runs)
    found = session.play(no_facts)
    assert f"02-{second}" not in runs.played, "the other run of a void pair is not worth its time"
    assert found.pairs == 6
    assert found.voids.base + found.voids.head == 2
    assert all(base.pair not in (2, 4) for base, _ in pairs(session.state))
    assert "others took the CPU" in found.voids.reasons[0]


def test_a_void_warm_up_is_discarded_like_any(tmp_path: Path) -> None:
    runs = MadeUpRuns(deviation=0.01, void={"00-base", "00-head"})
    assert started(tmp_path, runs).play(no_facts).exit_code == ExitCode.PASS


def test_a_fault_is_injected_once_after_the_warm_up(tmp_path: Path) -> None:
    """How much a share of a mean is, only a run can tell; one that goes on keeps what it told."""
    runs, seen = MadeUpRuns(broken_at=5), []

    def inject(asked: SessionSpec, warm_up: Evidence) -> SessionSpec:
        seen.append(warm_up.measures)
        return msgspec.structs.replace(asked, head=SideSpec(label="v2, later"))

    session = started(tmp_path, runs, SessionState(spec=spec(inject="scheduled=+10%")))
    session.inject = inject
    with pytest.raises(BrokenOff):
        session.play(no_facts)
    resumed = started(tmp_path, runs, read_state(tmp_path))
    resumed.inject = inject
    resumed.play(no_facts)
    assert len(seen) == 1
    labels = {folder.name: side.label for folder, side in runs.sides.items()}
    assert labels.pop(runs.played[0]) in ("v1", "v2")
    assert {name: label for name, label in labels.items() if name.endswith("head")}
    assert all(label == "v2, later" for name, label in labels.items() if name.endswith("head"))
    assert all(label == "v1" for name, label in labels.items() if name.endswith("base"))


def test_the_pairs_of_a_session_are_a_pool(tmp_path: Path) -> None:
    session = started(tmp_path, MadeUpRuns(), SessionState(spec=spec(inject="shard.cpu=+10%")))
    session.play(no_facts)
    found = session.pool()
    assert (found.injected, found.endpoint) == ("shard.cpu=+10%", "shardCpu")
    assert len(found.pairs) == len(pairs(session.state))


def test_sides_that_differ_are_no_pool_of_equal_systems(tmp_path: Path) -> None:
    session = started(tmp_path, MadeUpRuns())
    session.play(no_facts)
    with pytest.raises(ProfileError, match="its sides differ"):
        session.pool()


def test_a_session_is_judged_by_its_last_look(tmp_path: Path) -> None:
    """More looks than were planned would be more errors than are stated."""
    runs = MadeUpRuns(deviation=0.5, broken_at=1 + 2 * 7 + 1)
    with pytest.raises(BrokenOff):
        started(tmp_path, runs).play(no_facts)
    found = started(tmp_path, runs, read_state(tmp_path)).compare()
    assert found.pairs == 6
    assert "first 6 pairs" in found.warnings[0]


def test_a_build_that_changes_during_a_session_is_refused(tmp_path: Path) -> None:
    """Half of the runs of `.` would be those of the edited checkout."""
    runs = MadeUpRuns(deviation=0.01)
    session = started(tmp_path, runs)
    session.play(no_facts)
    edited = session.state.runs[-1].folder

    def read(folder: Path) -> Evidence:
        found = runs.read(folder)
        source = Provenance(
            revision="",
            dirty=None,
            code={"bigfleet": "b" if str(folder).endswith(edited) else "a"},
            inputs={},
            dependencies="",
            binaries={},
            machine=MachineIdentity(id="m", calibration_seconds=0.02),
        )
        changed = msgspec.structs.replace(found.summary, provenance=source)
        return replace(found, summary=changed)

    again = started(tmp_path, runs, session.state)
    again.read = read
    with pytest.raises(IncomparableError, match="another bigfleet than"):
        again.compare()


def test_a_head_that_always_voids_is_a_regression(tmp_path: Path) -> None:
    """With the reason, and without running the session to its last pair."""
    runs = MadeUpRuns(void={f"{pair:02d}-head" for pair in range(1, 99)})
    session = started(tmp_path, runs)
    found = session.play(no_facts)
    assert found.exit_code == ExitCode.REGRESSION
    assert len(voids(session.state)) == VOID_LIMIT
    assert "others took the CPU" in found.why[0]


def test_a_machine_that_voids_everything_is_not_heads_fault(tmp_path: Path) -> None:
    every = {f"{pair:02d}-{side}" for pair in range(1, 99) for side in ("base", "head")}
    assert (
        started(tmp_path, MadeUpRuns(void=every)).play(no_facts).exit_code == ExitCode.INVALID_RUN
    )


def test_a_busy_machine_ends_the_session_before_the_run(tmp_path: Path) -> None:
    class Busy(MadeUpRuns):
        def wait_until_quiet(self) -> None:
            raise InfrastructureError("busy")

    runs = Busy()
    with pytest.raises(InfrastructureError):
        started(tmp_path, runs).play(no_facts)
    assert runs.played == []


def test_facts_come_first_and_once(tmp_path: Path) -> None:
    asked: list[int] = []

    def facts() -> list[Fact]:
        asked.append(1)
        return [Fact(name="stories", changed=True, sentence="2 of 6", lines=["-a", "+b"])]

    runs = MadeUpRuns(broken_at=2)
    with pytest.raises(BrokenOff):
        started(tmp_path, runs).play(facts)
    found = started(tmp_path, MadeUpRuns(), read_state(tmp_path)).play(facts)
    assert asked == [1]
    assert [fact.name for fact in found.facts] == ["stories"]


def test_sides_that_cannot_be_compared_are_refused_by_their_first_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half an hour earlier than at the first look."""

    def refuse(*_: object) -> list[str]:
        raise IncomparableError(["another plan"])

    monkeypatch.setattr(sessions, "check", refuse)
    runs = MadeUpRuns()
    with pytest.raises(IncomparableError):
        started(tmp_path, runs).play(no_facts)
    assert len(runs.played) == 1 + 2


def test_a_session_that_has_ended_plays_no_more(tmp_path: Path) -> None:
    runs = MadeUpRuns(deviation=0.01)
    first = started(tmp_path, runs).play(no_facts)
    played = len(runs.played)
    again = started(tmp_path, runs, read_state(tmp_path)).play(no_facts)
    assert (len(runs.played), again.verdict, again.pairs) == (played, first.verdict, first.pairs)


def test_a_state_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="give the folder of a session"):
        read_state(tmp_path)
    (tmp_path / SESSION).write_text('{"schema": "x"')
    with pytest.raises(ProfileError, match="not a session"):
        read_state(tmp_path)


def test_the_state_survives_its_file(tmp_path: Path) -> None:
    state = SessionState(spec=spec(), runs=[RunRecord(pair=0, side="head", folder="x", void="")])
    write_state(tmp_path, state)
    assert read_state(tmp_path) == state
    step = next_step(read_state(tmp_path))
    assert step is not None
    assert (step.pair, step.sides) == (1, order(spec(), 1)[:1])
