"""Results folders: one per run, the newest linked as `latest`, old ones pruned."""

from __future__ import annotations

import os
import re
import shutil
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bigfleet.model.errors import UNDECODABLE
from loaddriver.errors import InfrastructureError, ProfileError
from loaddriver.report.manifest import PIN
from loaddriver.report.results import SUMMARY

LATEST = "latest"
KEPT_RUNS = 20
_RUN_NAME = re.compile(r"-\d{8}-\d{6}(-\d+)?$")


def create(results: Path, profile: str, number: int = 0) -> Path:
    """Create a results folder with empty `logs`; its name is the run id, unique in `results`.

    Runs of the same second elsewhere have other numbers. Raises InfrastructureError.
    """
    moment = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    for attempt in range(number, number + 100):
        folder = results / (f"{profile}-{moment}" + (f"-{attempt}" if attempt else ""))
        try:
            (folder / "logs").mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise InfrastructureError(
                f"cannot write results to {folder}: {error.strerror}"
            ) from None
        return folder
    raise InfrastructureError(f"{results} already has 100 runs of this second")


def point_latest(folder: Path) -> None:
    """Point `latest` at this run, atomically."""
    fresh = folder.parent / f".{LATEST}.{os.getpid()}"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(folder.name)
    fresh.replace(folder.parent / LATEST)


@dataclass(frozen=True)
class FinishedRun:
    """A run's folder, and what its summary says of it; `verdict` is "" if it cannot be read."""

    folder: Path
    profile: str
    verdict: str
    started_unix_seconds: float
    revision: str
    pinned: bool

    def size_bytes(self) -> int:
        """The space that the folder takes."""
        files = (path for path in self.folder.rglob("*") if path.is_file())
        return sum(path.stat().st_size for path in files)


def finished_runs(results: Path) -> list[FinishedRun]:
    """The runs below `results`, the oldest first; other folders are left out."""
    folders = [
        path
        for path in results.glob("*/")
        if _RUN_NAME.search(path.name) and (path / SUMMARY).is_file() and not path.is_symlink()
    ]
    return sorted(map(_finished, folders), key=lambda run: run.started_unix_seconds)


def set_pinned(results: Path, name: str, *, pinned: bool) -> None:
    """Keep a run from being pruned, or no longer. Raises ProfileError if there is no such run."""
    folder = results / name
    if folder.resolve().name not in [run.folder.name for run in finished_runs(results)]:
        raise ProfileError([f"{folder}: no finished run; `loaddriver runs` lists them"])
    if pinned:
        (folder / PIN).touch()
    else:
        (folder / PIN).unlink(missing_ok=True)


def prune(results: Path) -> list[str]:
    """Remove all but the newest runs of each profile, except pinned ones; return their names."""
    of_profile: defaultdict[str, list[FinishedRun]] = defaultdict(list)
    for run in finished_runs(results):
        if not run.pinned:
            of_profile[_RUN_NAME.sub("", run.folder.name)].append(run)
    old = [run.folder for runs in of_profile.values() for run in runs[:-KEPT_RUNS]]
    for folder in old:
        shutil.rmtree(folder, ignore_errors=True)
    return [folder.name for folder in old if not folder.exists()]


class _Revision(msgspec.Struct):
    revision: str = ""
    dirty: bool | None = None


class _RunOfSummary(msgspec.Struct, rename="camel"):
    profile: str = ""
    started_unix_seconds: float = 0.0


class _Head(msgspec.Struct):
    """What summaries of all versions have."""

    verdict: str = ""
    run: _RunOfSummary = msgspec.field(default_factory=_RunOfSummary)
    provenance: _Revision | None = None


def _finished(folder: Path) -> FinishedRun:
    try:
        head = msgspec.json.decode((folder / SUMMARY).read_bytes(), type=_Head)
    except (OSError, *UNDECODABLE):
        head = _Head()
    source = head.provenance or _Revision()
    return FinishedRun(
        folder=folder,
        profile=head.run.profile or _RUN_NAME.sub("", folder.name),
        verdict=head.verdict,
        started_unix_seconds=head.run.started_unix_seconds or folder.stat().st_mtime,
        revision=source.revision + ("+" if source.dirty else ""),
        pinned=(folder / PIN).exists(),
    )
