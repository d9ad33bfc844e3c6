"""Determines what a result comes from, so that two results can be told apart."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import time
from importlib import metadata
from pathlib import Path

import msgspec
import psutil

from controlplane.request import Binaries
from loaddriver.plan.files import plan_bytes
from loaddriver.record.provenance import MachineIdentity, Provenance
from loaddriver.report.manifest import digest_of_file
from loaddriver.run.host import processor
from loaddriver.run.inputs import RunInputs
from loaddriver.substrates.choice import Prerequisites
from loaddriver.substrates.existing.substrate import Prerequisites as ExistingPrerequisites

ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("bigfleet", "loaddriver", "controlplane")
_SYSTEM = "bigfleet"
_COMPILED = "__pycache__"
_MACHINE_ID = Path("/etc/machine-id")
_GIT_TIMEOUT_SECONDS = 20
_CALIBRATION_STEPS, _CALIBRATION_REPEATS = 150_000, 5


def read_provenance(
    inputs: RunInputs,
    prerequisites: Prerequisites,
    system: Path = ROOT,
    program: Path | None = None,
) -> Provenance:
    """Read everything; takes a second or two, and belongs before anything is started.

    BigFleet's processes are those of the checkout `system`, or the `program` in its place, which is
    a change of that checkout; everything else is the harness's.
    """
    revision, dirty = revision_of(system)
    packages = {name: (system if name == _SYSTEM else ROOT) / name for name in _PACKAGES}
    code = {name: digest_of_tree(at) for name, at in packages.items() if at.is_dir()}
    if program is not None:
        dirty = None if dirty is None else True
        code[_SYSTEM] = _digest(code.get(_SYSTEM, "").encode(), digest_of_file(program).encode())
    profile = inputs.profile
    encode = msgspec.json.encode
    return Provenance(
        revision=revision,
        dirty=dirty,
        code=code,
        inputs={
            "plan": _digest(plan_bytes(inputs.plan)),
            # Runs of two systems with one load are comparable: `run.system` says which it was.
            "profile": _digest(encode(profile.settings.without_system())),
            "gates": _digest(encode(profile.gates)),
            "catalog": _digest(encode(profile.catalog)),
            # In a history these runs have a baseline of their own.
            **({"machines": inputs.provider.digest} if inputs.provider else {}),
        },
        dependencies=_digest(_dependencies().encode()),
        binaries=binary_digests(prerequisites),
        machine=MachineIdentity(id=_machine_id(), calibration_seconds=calibrate()),
        provider=inputs.provider.used if inputs.provider else None,
    )


def revision_of(root: Path) -> tuple[str, bool | None]:
    """The checked-out commit and whether anything differs from it; "" and None without one."""
    if not (root / ".git").exists():
        return "", None
    try:
        commit = git(root, "rev-parse", "HEAD").strip()
        return commit, bool(git(root, "status", "--porcelain"))
    except (OSError, subprocess.SubprocessError):
        return "", None


def digest_of_tree(folder: Path) -> str:
    """The digest of all files below a folder, by name and content, without compiled ones."""
    files = (path for path in folder.rglob("*") if path.is_file() and _COMPILED not in path.parts)
    return _digest(
        *(
            part
            for path in sorted(files)
            for part in (str(path.relative_to(folder)).encode(), path.read_bytes())
        )
    )


def calibrate() -> float:
    """CPU seconds of a fixed task, the shortest of several: what this machine's core is worth."""
    return min(calibration_task() for _ in range(_CALIBRATION_REPEATS))


def calibration_task() -> float:
    """Interpreter work like that of BigFleet and the harness: integers, a dictionary, a loop.

    Returns the CPU seconds that it took.
    """
    began, total = time.thread_time(), 0
    table: dict[int, int] = {}
    for number in range(_CALIBRATION_STEPS):
        total = (31 * total + table.get(number & 1023, number)) & 0xFFFFFFFF
        table[number & 1023] = total
    return round(time.thread_time() - began, 6)


def git(root: Path, *arguments: str, timeout_seconds: float = _GIT_TIMEOUT_SECONDS) -> str:
    """What git prints in `root`. Raises OSError or SubprocessError."""
    return subprocess.run(
        ["git", "-C", str(root), *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=timeout_seconds,
    ).stdout


def _dependencies() -> str:
    """Every installed package with its version, a line each."""
    installed = {(each.name.lower(), each.version) for each in metadata.distributions()}
    return "\n".join(f"{name}=={version}" for name, version in sorted(installed))


def binary_digests(prerequisites: Prerequisites) -> dict[str, str]:
    """The digest of each component's file, or its image's reference."""
    if isinstance(prerequisites, Binaries):
        return {name: digest_of_file(path) for name, path in prerequisites.paths.items()}
    if isinstance(prerequisites, ExistingPrerequisites):
        return {n: digest_of_file(each.path) for n, each in prerequisites.programs.items()}
    return dict(prerequisites.places.images)


def _machine_id() -> str:
    """A digest of the machine's id and its hardware; without an id, of the hardware alone."""
    try:
        own = _MACHINE_ID.read_text().strip()
    except OSError:
        own = ""
    hardware = (platform.machine(), processor(), os.cpu_count(), psutil.virtual_memory().total)
    return _digest(*(str(each).encode() for each in (own, *hardware)))[:16]


def _digest(*parts: bytes) -> str:
    """The digest of parts; their lengths count, so that no two lists of parts are alike."""
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "big"))
        found.update(part)
    return found.hexdigest()
