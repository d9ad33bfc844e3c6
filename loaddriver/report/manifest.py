"""manifest.json: the SHA-256 of each file of a results folder, so that a later change shows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bigfleet.model.errors import UNDECODABLE
from loaddriver.report.replacing import replace_file

MANIFEST = "manifest.json"
PIN = "pinned"
"""Marks a run that is never pruned; not a result, and so not in the manifest."""
_SCHEMA = "bigfleet.manifest/v1"
_NAMED = 4


class _Manifest(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = _SCHEMA
    files: dict[str, str]


@dataclass(frozen=True)
class ManifestCheck:
    """The files that were compared with the manifest, and those that differ from it."""

    files: int
    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The outcome in words."""
        found = [
            f"{len(names)} {what} ({_some(names)})"
            for what, names in (("changed since the run", self.changed), ("gone", self.missing))
            if names
        ]
        if not found:
            return f"all {self.files} files are as the run left them ({MANIFEST})"
        return f"of {self.files} files in {MANIFEST}, {' and '.join(found)}"


def write_manifest(folder: Path) -> None:
    """Record every file below `folder`; folders with a manifest of their own are left out."""
    _write(folder, {name: digest_of_file(folder / name) for name in sorted(_files(folder, folder))})


def update_manifest(folder: Path, names: Iterable[str]) -> None:
    """Record these files anew, if there is a manifest: they were rewritten on purpose."""
    known = _read(folder)
    if known is not None:
        _write(folder, {**known, **{name: digest_of_file(folder / name) for name in names}})


def is_sealed(folder: Path) -> bool:
    """Whether there is a manifest that can be read."""
    return _read(folder) is not None


def check_manifest(folder: Path) -> ManifestCheck | None:
    """Compare the files with the manifest; None if there is none, or none that can be read."""
    known = _read(folder)
    if known is None:
        return None
    there = {name: (folder / name).is_file() for name in known}
    return ManifestCheck(
        files=len(known),
        changed=tuple(
            name
            for name, digest in known.items()
            if there[name] and digest_of_file(folder / name) != digest
        ),
        missing=tuple(name for name in known if not there[name]),
    )


def _files(top: Path, folder: Path) -> Iterator[str]:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            if not (path / MANIFEST).exists():
                yield from _files(top, path)
        elif path.is_file() and not (folder == top and path.name in (MANIFEST, PIN)):
            yield str(path.relative_to(top))


def digest_of_file(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read(folder: Path) -> dict[str, str] | None:
    try:
        found = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=_Manifest)
    except (OSError, *UNDECODABLE):
        return None
    return found.files if found.schema == _SCHEMA else None


def _write(folder: Path, files: dict[str, str]) -> None:
    text = msgspec.json.format(msgspec.json.encode(_Manifest(files=dict(sorted(files.items())))))
    replace_file(folder / MANIFEST, text + b"\n")


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
