"""Plays a session: pairs of runs in random order, until they tell enough.

Whatever runs is behind a port, so that this logic is tested without control planes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np

from loaddriver.compare.comparison import Comparison, Fact, Side
from loaddriver.compare.evaluate import About, compare
from loaddriver.compare.evidence import Evidence, check, insist, one_system, read_evidence
from loaddriver.compare.exact import Void, suspicious, too_many
from loaddriver.compare.facts import traffic_facts
from loaddriver.compare.injection import ENDPOINTS, injection_of
from loaddriver.compare.machine_speed import machine_speed, relative
from loaddriver.compare.measures import PairMeasures, pair_measures
from loaddriver.compare.pool import Pool, pool_of
from loaddriver.compare.sequential import Code, decided
from loaddriver.compare.state import (
    RunRecord,
    SessionSpec,
    SessionState,
    SideSpec,
    Step,
    next_step,
    pairs,
    resumed,
    sides_first,
    voids,
    write_state,
)
from loaddriver.errors import ProfileError

_SETTLED = {"regression", "same", "improvement", "not measured"}


class Runner(Protocol):
    """Plays runs."""

    def run(self, runs: Sequence[tuple[SideSpec, Path]]) -> list[Path]:
        """Play a run of each side in its folder, at the same time if they are several; return their
        results folders, each below the one given.

        Raises LoaddriverError if one was interrupted, or left no results: the session ends, and can
        go on later.
        """
        ...

    def wait_until_quiet(self) -> None:
        """Return once this machine is idle. Raises InfrastructureError if it stays busy."""
        ...


@dataclass
class Session:
    """A session in its folder; `say` prints a line.

    `inject` makes HEAD worse, given the warm-up.
    """

    folder: Path
    state: SessionState
    runner: Runner
    say: Callable[[str], None]
    force: bool = False
    read: Callable[[Path], Evidence] = read_evidence
    inject: Callable[[SessionSpec, Evidence], SessionSpec] | None = None
    _known: dict[str, Evidence] = field(default_factory=dict)

    def play(self, facts: Callable[[], Sequence[Fact]]) -> Comparison:
        """Go on until the verdict, from wherever the session was broken off."""
        if self.state.facts is None:
            self._save(msgspec.structs.replace(self.state, facts=list(facts())))
        if self.state.runs and (step := next_step(self.state)) is not None:
            if self._may_stop(step):
                return self.compare()
            self._save(resumed(self.state))
            self._warm_up_again()
        while (step := next_step(self.state)) is not None:
            if self._may_stop(step):
                break
            self._play(step)
            self._after_first_pair()
        return self.compare()

    def compare(self) -> Comparison:
        """The comparison of the pairs up to the last look. Raises IncomparableError."""
        spec = self.state.spec
        found, warnings = self._up_to_the_last_look()
        runs = [run for pair in found for run in pair]
        warnings += check(runs, spec.declared(), self.force)
        warnings += insist(one_system(zip(*found, strict=True)), self.force)
        about = About(
            profile=spec.profile,
            seed=runs[0].summary.run.seed if runs else spec.seed or 0,
            machine=machine_of(runs),
            session=self.folder.name,
            base=side_of(spec.base, [base for base, _ in found]),
            head=side_of(spec.head, [head for _, head in found]),
            warnings=warnings,
            pairing=spec.pairing,
            facts=[*(self.state.facts or ()), *_traffic_facts(found)],
        )
        of_voids = [Void(run.side, run.void) for run in voids(self.state)]
        return compare(about, _measured(found), of_voids, spec.plan())

    def _after_first_pair(self) -> None:
        """Refuse sides that cannot be compared, not an hour later at the first look; say what one
        run of each shows.
        """
        complete = pairs(self.state)
        if len(complete) != 1 or self.state.runs[-1] not in complete[0]:
            return
        found = [(self._evidence(complete[0][0]), self._evidence(complete[0][1]))]
        check(found[0], self.state.spec.declared(), self.force)
        for fact in _traffic_facts(found):
            self.say(f"{fact.name}: {fact.sentence}")

    def pool(self) -> Pool:
        """Its pairs as a pool.

        Raises IncomparableError, or ProfileError if its sides differ by more than a fault.
        """
        spec = self.state.spec
        if spec.base != spec.head and not spec.inject:
            raise ProfileError(
                [f"{self.folder}: its sides differ, and not by --inject: {spec.head.label}"]
            )
        found = self._pairs()
        runs = [run for pair in found for run in pair]
        check(runs, spec.declared(), self.force)
        insist(one_system(zip(*found, strict=True)), self.force)
        endpoint = ENDPOINTS[injection_of(spec.inject).fault] if spec.inject else ""
        measured = _measured(found)
        comparable = relative(measured, machine_speed(measured, spec.pairing))
        machine = machine_of(runs)
        return pool_of(spec.profile, machine, comparable, spec.inject, endpoint, spec.pairing)

    def _pairs(self) -> list[tuple[Evidence, Evidence]]:
        return [(self._evidence(base), self._evidence(head)) for base, head in pairs(self.state)]

    def _up_to_the_last_look(self) -> tuple[list[tuple[Evidence, Evidence]], list[str]]:
        """Those pairs, and a warning if there are others: errors are stated for looks alone."""
        found = self._pairs()
        looks = [look for look in self.state.spec.plan().looks if look <= len(found)]
        if not looks or looks[-1] == len(found):
            return found, []
        return found[: looks[-1]], [
            f"Judged by its first {looks[-1]} pairs: it ended between two looks, after {len(found)}"
        ]

    def _warm_up_again(self) -> None:
        """Play what does not count: caches are cold again."""
        self.runner.wait_until_quiet()
        spec = self.state.spec
        sides = sides_first(spec, len(self.state.runs))
        self.say("warm-up after a break, discarded")
        self.runner.run([(spec.side(side), self._emptied(f"warm-up-{side}")) for side in sides])

    def _may_stop(self, step: Step) -> bool:
        """Whether the pairs so far suffice; asked only between pairs, and only at looks."""
        complete = len(pairs(self.state))
        between = step.pair not in {run.pair for run in self.state.runs}
        if not between or complete not in self.state.spec.plan().looks:
            return False
        found = self.compare()
        self.say(f"{complete} pairs: {found.verdict}; {found.why[0]}")
        return is_settled(found)

    def _play(self, step: Step) -> None:
        self.runner.wait_until_quiet()
        spec = self.state.spec
        names = [f"{step.pair:02d}-{side}" for side in step.sides]
        labels = " and ".join(spec.side(side).label for side in step.sides)
        self.say(
            f"warm-up, discarded: {labels}"
            if step.is_warm_up
            else f"{' and '.join(names)}: {labels}"
        )
        sides = [spec.side(side) for side in step.sides]
        folders = self.runner.run(
            [(side, self._emptied(name)) for side, name in zip(sides, names, strict=True)]
        )
        found = [self.read(folder) for folder in folders]
        if step.is_warm_up and self.inject is not None:
            spec = self.inject(spec, found[0])
        records = [
            RunRecord(
                pair=step.pair,
                side=side,
                folder=str(folder.relative_to(self.folder)),
                void=evidence.void_reason,
            )
            for side, folder, evidence in zip(step.sides, folders, found, strict=True)
        ]
        runs = [*self.state.runs, *records]
        self._save(msgspec.structs.replace(self.state, spec=spec, runs=runs))
        for name, record in zip(names, records, strict=True):
            if record.void and not step.is_warm_up:
                self.say(f"{name} is void, and its pair with it: {record.void}")

    def _emptied(self, name: str) -> Path:
        """A folder for a run, without what one that was broken off left there."""
        folder = self.folder / "runs" / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def _evidence(self, record: RunRecord) -> Evidence:
        if record.folder not in self._known:
            self._known[record.folder] = self.read(self.folder / record.folder)
        return self._known[record.folder]

    def _save(self, state: SessionState) -> None:
        write_state(self.folder, state)
        self.state = state


def _measured(found: Sequence[tuple[Evidence, Evidence]]) -> list[PairMeasures]:
    return [
        pair_measures(base.measures, head.measures)
        for base, head in found
        if base.measures is not None and head.measures is not None
    ]


def _traffic_facts(found: Sequence[tuple[Evidence, Evidence]]) -> list[Fact]:
    measured = _measured(found[:1])
    return traffic_facts(measured[0]) if measured else []


def is_settled(found: Comparison) -> bool:
    """Whether more pairs would change nothing: a regression, or nothing left to know."""
    if too_many(found.voids):
        return True
    if suspicious(found.voids) and found.verdict != "regression":
        return False
    verdicts = [each.verdict for each in found.endpoints]
    verdicts += [each.verdict for each in found.events]
    codes = [Code.REGRESSION if v == "regression" else int(v in _SETTLED) for v in verdicts]
    return bool(decided(np.array([codes], dtype=np.int8))[0])


def side_of(spec: SideSpec, runs: Sequence[Evidence]) -> Side:
    """What the outputs say of a side."""
    source = runs[0].summary.provenance if runs else None
    return Side(
        label=spec.label,
        revision=source.revision if source else "",
        dirty=source.dirty if source else None,
        differs=spec.differs(),
        versions=dict(runs[0].summary.run.versions) if runs else {},
    )


def machine_of(runs: Sequence[Evidence]) -> str:
    """The id of the machine that runs were on, "" if unknown."""
    source = runs[0].summary.provenance if runs else None
    return source.machine.id if source else ""
