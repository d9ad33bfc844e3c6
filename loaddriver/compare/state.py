"""A session's state on disk, and what it does next. Pure but for reading and writing the file."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from bigfleet.model.errors import UNDECODABLE
from loaddriver.compare.comparison import Fact, Pairing, Record
from loaddriver.compare.exact import VOID_LIMIT
from loaddriver.compare.sequential import Spending, spending
from loaddriver.errors import ProfileError
from loaddriver.report.replacing import replace_file

SESSION = "session.json"
SCHEMA = "bigfleet.compare-session/v2"
SideName = Literal["base", "head"]
SIDES: tuple[SideName, SideName] = ("base", "head")
_WARM_UP = 0


class SideSpec(Record, frozen=True, kw_only=True):
    """What one side runs, where it differs from the harness's own checkout and pinned binaries.

    `sut` is a checkout with its environment, `components` are programs by the name of the component
    in whose place they are, `overrides` are settings of the profile.
    """

    label: str
    sut: str = ""
    kubernetes_version: str = ""
    components: dict[str, str] = msgspec.field(default_factory=dict)
    scheduler_config: str = ""
    overrides: list[str] = msgspec.field(default_factory=list)

    def differs(self) -> list[str]:
        """A phrase for each difference."""
        named = (
            ("BigFleet of", self.sut),
            ("Kubernetes", self.kubernetes_version),
            *((f"{name} at", path) for name, path in self.components.items()),
            ("kube-scheduler configured by", self.scheduler_config),
        )
        return [f"{what} {value}" for what, value in named if value] + self.overrides


class SessionSpec(Record, frozen=True, kw_only=True):
    """What a session was asked to do; `order_seed` decides which side of a pair is first, `inject`
    is the fault that HEAD gets after the warm-up, such as scheduled=+10%, and `profiles` the folder
    of the profile, "" for the harness's own. `at_once`: both runs of a pair are played at the same
    time.
    """

    profile: str
    seed: int | None
    least_pairs: int
    most_pairs: int
    least_effect: float
    order_seed: int
    base: SideSpec
    head: SideSpec
    inject: str = ""
    profiles: str = ""
    at_once: bool = False

    @property
    def pairing(self) -> Pairing:
        """How the runs of a pair meet the machine."""
        return "at once" if self.at_once else "interleaved"

    def side(self, name: SideName) -> SideSpec:
        """The side of that name."""
        return self.base if name == "base" else self.head

    def plan(self) -> Spending:
        """When the session is judged, and by which errors."""
        return spending(self.most_pairs, self.least_effect, self.least_pairs)

    def declared(self) -> list[str]:
        """The differences between runs that are what is compared."""
        return ["profile's settings"] if self.base.overrides != self.head.overrides else []


class RunRecord(Record, frozen=True, kw_only=True):
    """A finished run of pair `pair` (0: the warm-up); `folder` is below the session's.

    `void` is the reason why it does not count, "" if it does.
    """

    pair: int
    side: SideName
    folder: str
    void: str

    @property
    def is_warm_up(self) -> bool:
        """Whether it is discarded."""
        return self.pair == _WARM_UP


class SessionState(Record, frozen=True, kw_only=True):
    """The whole of session.json, written after each run; `facts` are null until established."""

    schema: str = SCHEMA
    spec: SessionSpec
    runs: list[RunRecord] = msgspec.field(default_factory=list)
    facts: list[Fact] | None = None


@dataclass(frozen=True)
class Step:
    """The next runs of a session: one, or those of both sides at once, in the order of starting."""

    pair: int
    sides: Sequence[SideName]

    @property
    def is_warm_up(self) -> bool:
        """Whether its results are discarded."""
        return self.pair == _WARM_UP


def order(spec: SessionSpec, pair: int) -> tuple[SideName, SideName]:
    """Which side of a pair runs first: a coin, the same whenever it is asked."""
    first, second = random.Random(f"{spec.order_seed}/{pair}").sample(SIDES, 2)
    return first, second


def next_step(state: SessionState) -> Step | None:
    """What to run next, None once there are enough pairs or too many voids.

    The first run of all is discarded: it fills caches that later ones find. A void discards its
    pair; if it was the first of the two, the second is not run.
    """
    if not state.runs:
        return Step(_WARM_UP, sides_first(state.spec, _WARM_UP))
    if len(voids(state)) >= VOID_LIMIT or len(pairs(state)) >= state.spec.most_pairs:
        return None
    last = max(run.pair for run in state.runs)
    of_last = [run for run in state.runs if run.pair == last]
    open_pair = last != _WARM_UP and len(of_last) == 1 and not of_last[0].void
    if open_pair:
        return Step(last, order(state.spec, last)[1:])
    return Step(last + 1, sides_first(state.spec, last + 1))


def sides_first(spec: SessionSpec, pair: int) -> Sequence[SideName]:
    """The sides with which a pair, or a warm-up in its place, begins."""
    return order(spec, pair)[: len(SIDES) if spec.at_once else 1]


def resumed(state: SessionState) -> SessionState:
    """The state to go on from: a pair of which one run was played is played anew, since both of its
    runs have to meet the machine as it is at one time.
    """
    sides = Counter(run.pair for run in state.runs if not run.is_warm_up)
    kept = [run for run in state.runs if run.is_warm_up or run.void or sides[run.pair] > 1]
    return msgspec.structs.replace(state, runs=kept)


def pairs(state: SessionState) -> list[tuple[RunRecord, RunRecord]]:
    """The runs of each valid pair, BASE first, in the order of the session."""
    return list(_pairs(state.runs))


def voids(state: SessionState) -> list[RunRecord]:
    """The void runs, at most one of a pair: of two at once the one that was started first.

    A void warm-up counts as none, since it would have been discarded anyway.
    """
    found = [run for run in state.runs if run.void and not run.is_warm_up]
    return list({run.pair: run for run in reversed(found)}.values())[::-1]


def write_state(folder: Path, state: SessionState) -> None:
    """Write session.json, atomically: an interruption never leaves half of it."""
    replace_file(folder / SESSION, msgspec.json.format(msgspec.json.encode(state)) + b"\n")


def read_state(folder: Path) -> SessionState:
    """The state of a session. Raises ProfileError if the folder has none."""
    path = folder / SESSION
    try:
        state = msgspec.json.decode(path.read_bytes(), type=SessionState)
    except OSError as error:
        raise ProfileError([f"{path}: {error.strerror}; give the folder of a session"]) from None
    except UNDECODABLE as error:
        raise ProfileError([f"{path}: not a session of schema {SCHEMA}: {error}"]) from None
    if state.schema != SCHEMA:
        raise ProfileError([f"{path}: a session of schema {state.schema}, not {SCHEMA}"])
    return state


def _pairs(runs: Sequence[RunRecord]) -> Iterator[tuple[RunRecord, RunRecord]]:
    for number in dict.fromkeys(run.pair for run in runs if not run.is_warm_up):
        found = {run.side: run for run in runs if run.pair == number and not run.void}
        if len(found) == len(SIDES):
            yield found["base"], found["head"]
