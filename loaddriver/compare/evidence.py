"""Results folders as evidence: unchanged since their run, and comparable with each other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from loaddriver.compare.measures import RunMeasures, run_measures
from loaddriver.errors import ExitCode, LoaddriverError
from loaddriver.judge.schema import Summary
from loaddriver.report.manifest import MANIFEST, check_manifest
from loaddriver.report.results import read_pods, read_summary

VOID_VERDICTS = ("invalid", "error")
"""Verdicts of runs without a valid measurement; a run that missed gates was measured."""
MOST_CALIBRATION_CHANGE = 0.10
_DIGITS = 12


class IncomparableError(LoaddriverError):
    """Results were changed, or are of different plans, profiles, harnesses or machines."""

    exit_code = ExitCode.USAGE

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        advice = "not compared; --force compares them all the same, and the page will say so"
        super().__init__("\n".join([*problems, advice]))


@dataclass(frozen=True)
class Evidence:
    """A run's results; `measures` is None if the run is void."""

    folder: Path
    summary: Summary
    measures: RunMeasures | None

    @property
    def void_reason(self) -> str:
        """Why the run is void; "" if it is not."""
        if self.measures is not None:
            return ""
        return self.summary.why[0] if self.summary.why else self.summary.verdict


@dataclass(frozen=True)
class Difference:
    """What two runs do not share: a short name of it, and a sentence that names both runs."""

    what: str
    sentence: str


def read_evidence(folder: Path) -> Evidence:
    """Read a run. Raises ProfileError if it has no readable summary."""
    summary = read_summary(folder)
    void = summary.verdict in VOID_VERDICTS
    return Evidence(folder, summary, None if void else run_measures(summary, read_pods(folder)))


def tampering(folder: Path) -> list[str]:
    """A sentence for a folder that is not as its run left it; empty if it is."""
    check = check_manifest(folder)
    if check is None:
        return [f"{folder}: no {MANIFEST} that can be read, so nobody knows whose files these are"]
    return [f"{folder}: {check.sentence}"] if check.changed or check.missing else []


def differences(one: Evidence, other: Evidence) -> Iterator[Difference]:
    """What both runs should share and do not; the system under test is not among it."""
    for what, left, right in _shared(one, other):
        if left != right:
            yield Difference(
                what,
                f"{other.folder}: another {what} than {one.folder}: "
                f"{_short(right)} instead of {_short(left)}",
            )


def slower(base: Sequence[Evidence], head: Sequence[Evidence]) -> list[str]:
    """A sentence if the machine was not as fast for both sides, by its calibration.

    Interleaved runs need none: whatever the machine does, it does to both.
    """
    medians = [_calibration(base), _calibration(head)]
    if None in medians or not all(medians):
        return []
    was, now = (each or 0.0 for each in medians)
    if abs(now / was - 1) <= MOST_CALIBRATION_CHANGE:
        return []
    return [
        f"{head[0].folder.parent}: a fixed task took {1000 * now:.1f} ms of CPU before these runs, "
        f"and {1000 * was:.1f} ms before those of {base[0].folder.parent}: not the same machine, "
        "or not at the same speed"
    ]


def check(
    runs: Sequence[Evidence], declared: Collection[str] = (), force: bool = False
) -> list[str]:
    """Warnings about runs that are compared although they should not be; empty if all is well.

    `declared` names differences that are what is compared. Raises IncomparableError unless forced.
    """
    problems = [sentence for run in runs for sentence in tampering(run.folder)]
    problems += [
        f"{run.folder}: no provenance, so its plan, its harness and its machine are unknown"
        for run in runs
        if run.summary.provenance is None
    ]
    found = {
        difference.sentence
        for run in runs[1:]
        for difference in differences(runs[0], run)
        if difference.what not in declared
    }
    return insist([*problems, *sorted(found)], force)


def one_system(sides: Iterable[Sequence[Evidence]]) -> list[str]:
    """Sentences about runs with another build or other settings than the first of their side, if
    there are any.
    """
    return [sentence for side in sides for sentence in _systems_differ(side)]


def _systems_differ(side: Sequence[Evidence]) -> Iterator[str]:
    built = [
        (
            run.folder,
            {
                "bigfleet": source.code.get("bigfleet", ""),
                # Sides may differ in them; then nothing else compares them.
                "profile's settings": source.inputs.get("profile", ""),
                **source.binaries,
            },
        )
        for run in side
        if (source := run.summary.provenance) is not None
    ]
    for folder, each in built[1:]:
        for name in sorted(each.keys() | built[0][1].keys()):
            if each.get(name) != built[0][1].get(name):
                yield f"{folder}: another {name} than {built[0][0]}, and both are runs of one side"


def insist(problems: Sequence[str], force: bool) -> list[str]:
    """The problems as warnings if forced. Raises IncomparableError otherwise."""
    if problems and not force:
        raise IncomparableError(problems)
    return [f"Forced: {problem}" for problem in problems]


def _shared(one: Evidence, other: Evidence) -> Iterator[tuple[str, object, object]]:
    runs = one.summary.run, other.summary.run
    yield "profile", runs[0].profile, runs[1].profile
    yield "seed", runs[0].seed, runs[1].seed
    yield "substrate", runs[0].substrate, runs[1].substrate
    yield "number of runs at once", 1 + runs[0].at_once, 1 + runs[1].at_once
    sources = one.summary.provenance, other.summary.provenance
    if sources[0] is None or sources[1] is None:
        return  # `check` refuses such a run by itself
    for what, key in (("plan", "plan"), ("profile's settings", "profile"), ("catalog", "catalog")):
        yield what, sources[0].inputs.get(key), sources[1].inputs.get(key)
    for name in ("loaddriver", "controlplane"):
        yield "harness", sources[0].code.get(name), sources[1].code.get(name)
    yield "harness", sources[0].dependencies, sources[1].dependencies
    yield "machine", sources[0].machine.id, sources[1].machine.id


def _calibration(runs: Sequence[Evidence]) -> float | None:
    known = [run.summary.provenance for run in runs]
    found = [each.machine.calibration_seconds for each in known if each is not None]
    return median(found) if found else None


def _short(value: object) -> str:
    text = "unknown" if value is None else str(value)
    return text[:_DIGITS] if len(text) == 64 else text
