"""The base of images that run Python: the public one where it can be had, else one made here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kind.engine import Engine
from kind.rootfs import Base, resolve_base

SCRATCH = "scratch"
PUBLIC = "docker.io/library/python:3.11-slim-bookworm"
PYTHON_BASE = Base(
    "bigfleet-python-base", ("ca-certificates", "libpython3-stdlib", "python3-minimal")
)


def known_bases() -> tuple[str, ...]:
    """The bases that an image kept from earlier may stand on."""
    return (PYTHON_BASE.reference, PUBLIC)


def resolve_python_base(
    engine: Engine, work_directory: Path, progress: Callable[[str], None]
) -> str:
    """A base that the engine holds now. Raises KindError where none can be had or made."""
    if engine.has_image(PYTHON_BASE.reference) or not engine.can_pull(PUBLIC, progress):
        return resolve_base(PYTHON_BASE, engine, work_directory, progress)
    return PUBLIC
