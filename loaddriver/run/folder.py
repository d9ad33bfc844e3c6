"""Results folders: one per run, the newest linked as `latest`, old ones pruned."""

from __future__ import annotations

import os
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

from loaddriver.errors import InfrastructureError
from loaddriver.report.results import SUMMARY

LATEST = "latest"
KEPT_RUNS = 20
_RUN_NAME = re.compile(r"-\d{8}-\d{6}(-\d+)?$")


def create(results: Path, profile: str) -> Path:
    """Create a results folder with empty `logs`; its name is the run id.

    Raises InfrastructureError.
    """
    moment = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    for attempt in range(100):
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


def prune(results: Path) -> list[str]:
    """Remove all but the newest runs and return their names; other folders are kept."""
    runs = sorted(
        (p for p in results.glob("*/") if _RUN_NAME.search(p.name) and (p / SUMMARY).is_file()),
        key=lambda p: (p / SUMMARY).stat().st_mtime,
    )
    old = [folder for folder in runs[:-KEPT_RUNS] if not folder.is_symlink()]
    for folder in old:
        shutil.rmtree(folder, ignore_errors=True)
    return [folder.name for folder in old if not folder.exists()]
