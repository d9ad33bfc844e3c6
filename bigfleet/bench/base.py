"""Another revision of BigFleet, measured in turns with this one.

Each measurement is a process of its own, so that neither revision profits from what the other has
warmed up, and the machine's slow minutes meet both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bigfleet.bench.measured import Row
from bigfleet.model.errors import InvalidInput

# Measurements of each revision, in turns.
ROUNDS = 3
_ROOT = Path(__file__).parents[2]
_UNKNOWN_ROW = 2
_WORK = ("needs", "orders", "short")


@contextmanager
def checkout(revision: str) -> Iterator[Path]:
    """BigFleet's sources at `revision`, in a folder of their own. InvalidInput."""
    git = ["git", "-C", str(_ROOT)]
    try:
        archive = subprocess.run(
            [*git, "archive", "--format=tar", revision, "bigfleet"], capture_output=True, check=True
        ).stdout
    except subprocess.CalledProcessError as error:
        hint = f"is no revision with BigFleet in it: {error.stderr.decode().strip()}"
        raise InvalidInput("--base", revision, hint) from None
    with TemporaryDirectory(prefix="bigfleet-bench-") as folder:
        with tarfile.open(fileobj=BytesIO(archive)) as files:
            # Python has filters since 3.11.4.
            files.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
            files.extractall(folder)
        yield Path(folder)


def ratio(base: Path, row: Row, times: int, scale: float) -> tuple[float | None, str]:
    """How long the row takes here compared with `base`, by medians; and why there is no ratio, or
    what it should be read with.
    """
    here: list[float] = []
    there: list[float] = []
    why = ""
    for number in range(ROUNDS):
        sides = [(_ROOT, here), (base, there)]
        work = []
        for root, medians in sides if number % 2 == 0 else reversed(sides):
            record = _measured(root, row, times, scale)
            if isinstance(record, str):
                return None, f"{'this revision' if root is _ROOT else 'the base'} {record}"
            medians.append(float(str(record["median"])))
            work.append([record[name] for name in _WORK])
        if work[0] != work[1]:
            why = "the base decided otherwise"
    return median(here) / median(there), why


def _measured(root: Path, row: Row, times: int, scale: float) -> Mapping[str, object] | str:
    """The record of the row at that revision, or why there is none."""
    with TemporaryDirectory(prefix="bigfleet-bench-") as results:
        command = [sys.executable, "-m", "bigfleet.bench", "--rows", row.name]
        command += ["--cycles", str(times), "--scale", str(scale), "--results", results]
        environment = os.environ | {"PYTHONPATH": str(root)}
        done = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, check=False
        )
        found = Path(results) / "latest.json"
        if not found.exists():
            unknown = done.returncode == _UNKNOWN_ROW and "no row has" in done.stderr
            return "has no such row" if unknown else f"cannot be measured: {done.stderr[-300:]}"
        records = json.loads(found.read_text())
    return next((each for each in records if each["name"] == row.name), "has no such row")
