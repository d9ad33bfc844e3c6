"""The files of a node image: those that kind expects in every one, and ours with their blanks.

kind's come out of the kind module when an image is made, so that they always fit the kind that
starts it; this repository holds no copy.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from kind.content_key import source_files
from kind.errors import KindError

# Under images/base/files of the kind module; what is missing here is replaced by our files/.
_TAKEN = (
    "etc/crictl.yaml",
    "etc/default/kubelet",
    "etc/sysctl.d",
    "etc/systemd/system/kubelet.service",
    "etc/systemd/system/kubelet.service.d",
    "etc/systemd/system/kubelet.slice",
    "etc/systemd/system/undo-mount-hacks.service",
    "kind",
    "usr/local/bin/entrypoint",
)
_EXECUTABLE_FOLDERS = ("bin",)


def copy_kind_files(kind_module: Path, destination: Path) -> None:
    """Copies them. Raises KindError where this kind's module is laid out differently."""
    files = kind_module / "images" / "base" / "files"
    for name in _TAKEN:
        taken = files / name
        if not taken.exists():
            raise KindError(f"the kind module has no {taken}: it does not fit this project's pin")
        for file in [taken] if taken.is_file() else sorted(taken.rglob("*")):
            if file.is_file():
                _copy(file, destination / file.relative_to(files))


def _copy(file: Path, target: Path) -> None:
    """With rights of its own: files in Go's module cache are read-only and never executable."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, target)
    target.chmod(0o755 if target.parent.name in _EXECUTABLE_FOLDERS else 0o644)


def render_templates(templates: Path, destination: Path, values: Mapping[str, str]) -> None:
    """Copies a tree of text files with every blank replaced by what belongs there."""
    for template in source_files(templates):
        text = template.read_text(encoding="utf-8")
        for placeholder, value in values.items():
            text = text.replace(placeholder, value)
        target = destination / template.relative_to(templates)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
