"""Base images without a registry: a minimal Debian, from Debian packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from controlplane.cache import file_lock
from controlplane.command import run_logged
from controlplane.errors import BinaryError
from kind.command import run
from kind.content_key import content_key
from kind.engine import Engine
from kind.errors import KindError
from kind.host_tools import require_tools

SUITE = "bookworm"
_MIRROR = "http://deb.debian.org/debian"
_NOT_NEEDED = (
    "usr/share/doc",
    "usr/share/locale",
    "usr/share/man",
    "var/cache/apt",
    "var/lib/apt/lists",
)
_IMPORT_SECONDS = 300.0
_PROGRESS_SECONDS = 15.0
# Increment it when _trim changes: part of an image's key.
_FORM = "2"


@dataclass(frozen=True)
class Base:
    """A minimal Debian with additional packages; `name` is unique in the engine."""

    name: str
    packages: tuple[str, ...]

    @property
    def reference(self) -> str:
        """The image's name in the engine."""
        return f"localhost/{self.name}:{content_key(_FORM, SUITE, *self.packages)}"


def resolve_base(
    base: Base, engine: Engine, work_directory: Path, progress: Callable[[str], None]
) -> str:
    """The reference of the base image, built if the engine does not have it.

    Raises KindError: not root, a missing tool, or unavailable packages.
    """
    work_directory.mkdir(parents=True, exist_ok=True)
    lock = work_directory / f"{base.name}.lock"
    with file_lock(lock, f"making {base.name}", progress, _PROGRESS_SECONDS):
        if not engine.has_image(base.reference):
            _make(base, engine, work_directory, progress)
    return base.reference


def _make(
    base: Base, engine: Engine, work_directory: Path, progress: Callable[[str], None]
) -> None:
    if os.geteuid() != 0:
        raise KindError(f"building {base.reference} needs root: debootstrap sets up a system in it")
    require_tools(("debootstrap", "tar"), engine.environment)
    progress(f"building {base.reference} from Debian packages (half a minute to two minutes)")
    with tempfile.TemporaryDirectory(prefix=f".{base.name}-", dir=work_directory) as scratch:
        tree = Path(scratch) / "tree"
        _debootstrap(base, tree, engine, work_directory / f"{base.name}.log", progress)
        _trim(tree)
        _import(tree, base.reference, engine)


def _debootstrap(
    base: Base, tree: Path, engine: Engine, log: Path, progress: Callable[[str], None]
) -> None:
    command = [
        "debootstrap",
        "--variant=minbase",
        f"--include={','.join(base.packages)}",
        SUITE,
        str(tree),
        _MIRROR,
    ]
    log.write_text("", encoding="utf-8")
    try:
        run_logged(
            f"installing Debian packages for {base.name}",
            command,
            Path("/"),
            engine.environment,
            log,
            lambda seconds: progress(f"installing Debian packages: {seconds:.0f} s elapsed"),
            _PROGRESS_SECONDS,
        )
    except BinaryError as error:
        raise KindError(str(error)) from error


def _trim(tree: Path) -> None:
    """Remove apt data and documentation."""
    for folder in _NOT_NEEDED:
        shutil.rmtree(tree / folder, ignore_errors=True)
        (tree / folder).mkdir(parents=True)


def _import(tree: Path, reference: str, engine: Engine) -> None:
    """Stream the tree into the engine, without /dev and /proc."""
    command = ["tar", "-C", str(tree), "--numeric-owner", "--sort=name"]
    command += [f"--exclude=./{folder}/*" for folder in ("proc", "sys", "dev")]
    with subprocess.Popen([*command, "-cf", "-", "."], stdout=subprocess.PIPE) as packing:
        assert packing.stdout is not None
        run(
            [str(engine.path), "import", "-", reference],
            engine.environment,
            _IMPORT_SECONDS,
            packing.stdout,
        )
    if packing.returncode != 0:
        engine.run("rmi", reference)
        raise KindError(f"packing {tree} failed: tar ended with {packing.returncode}")
