"""Compares results that are already on disk, of two folders or of a finished session."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from loaddriver.compare.comparison import Comparison
from loaddriver.compare.evaluate import About, compare
from loaddriver.compare.evidence import Evidence, check, insist, one_system, read_evidence, slower
from loaddriver.compare.exact import Runs, Void
from loaddriver.compare.measures import pair_measures
from loaddriver.compare.sequential import spending
from loaddriver.compare.session import machine_of, side_of
from loaddriver.compare.state import SESSION, SideSpec, read_state
from loaddriver.errors import ProfileError
from loaddriver.report.results import SUMMARY
from loaddriver.run.folder import finished_runs

NOT_INTERLEAVED = (
    "These runs were not interleaved: whatever else changed on the machine between them is part of "
    "every difference, and the stated errors do not hold."
)


def runs_in(folder: Path) -> list[Path]:
    """The runs of a folder: of HEAD in a session, one run, or all that are in it.

    A session's HEAD is the baseline of the next one. Raises ProfileError if there is no run.
    """
    if (folder / SESSION).exists():
        runs = read_state(folder).runs
        found = [folder / run.folder for run in runs if run.side == "head" and not run.is_warm_up]
        if not found:
            raise ProfileError([f"{folder}: a session without any run of HEAD yet"])
        return found
    if (folder / SUMMARY).exists():
        return [folder]
    found = [run.folder for run in finished_runs(folder)] if folder.is_dir() else []
    if not found:
        raise ProfileError([f"{folder}: neither a run, a folder of runs, nor a session"])
    return found


def compare_stored(base: Path, head: Path, least_effect: float, force: bool) -> Comparison:
    """Compare two folders, the k-th valid run of one with the k-th of the other, at one look.

    Raises IncomparableError, or ProfileError if a folder has no runs that can be read.
    """
    if base.resolve() == head.resolve():
        raise ProfileError([f"{head}: compared with itself; give two folders"])
    sides = [[read_evidence(run) for run in runs_in(folder)] for folder in (base, head)]
    warnings = [
        NOT_INTERLEAVED,
        *check([*sides[0], *sides[1]], force=force),
        *insist(one_system(sides), force),
        *insist(slower(*sides), force),
    ]
    valid = [[run for run in side if run.measures is not None] for side in sides]
    count = max(1, min(map(len, valid)))
    run = sides[0][0].summary.run
    about = About(
        profile=run.profile,
        seed=run.seed,
        machine=machine_of(sides[0]),
        session=f"{base} and {head}",
        base=side_of(SideSpec(label=str(base)), sides[0]),
        head=side_of(SideSpec(label=str(head)), sides[1]),
        warnings=warnings,
        runs=Runs(*map(len, sides)),
        pairing="on disk",
    )
    measured = [
        pair_measures(one.measures, other.measures)
        for one, other in zip(*valid, strict=False)
        if one.measures is not None and other.measures is not None
    ]
    voids = [*_voids("base", sides[0]), *_voids("head", sides[1])]
    return compare(about, measured, voids, spending(count, least_effect, count))


def _voids(side: str, runs: Sequence[Evidence]) -> list[Void]:
    return [Void(side, run.void_reason) for run in runs if run.measures is None]
