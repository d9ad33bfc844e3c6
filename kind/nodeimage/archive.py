"""Image archives as `docker load` and `ctr images import` read them: a single layer.

Equal inputs give equal bytes: owners, times and order are fixed.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Contents:
    """An image's content: executables by absolute path, and a tar of additional files."""

    executables: Mapping[str, Path]
    more: bytes | None = None
    entrypoint: Sequence[str] = field(default_factory=tuple)


def write_archive(destination: Path, reference: str, contents: Contents, architecture: str) -> None:
    """Write a docker-archive of one image named `reference`."""
    layer = _layer(contents)
    config = _json(
        {
            "architecture": architecture,
            "os": "linux",
            "config": {"Env": [_PATH], "Entrypoint": list(contents.entrypoint)},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    )
    manifest = _json([{"Config": "config.json", "RepoTags": [reference], "Layers": ["layer.tar"]}])
    parts = {"config.json": config, "layer.tar": layer, "manifest.json": manifest}
    with tarfile.open(destination, "w") as archive:
        for name, content in parts.items():
            _add(archive, name, content, 0o644)


def _layer(contents: Contents) -> bytes:
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        if contents.more is not None:
            _copy(contents.more, archive)
        for path, source in sorted(contents.executables.items()):
            _add(archive, path.lstrip("/"), source.read_bytes(), 0o755)
    return layer.getvalue()


def _copy(tar: bytes, archive: tarfile.TarFile) -> None:
    with tarfile.open(fileobj=io.BytesIO(tar)) as given:
        for member in sorted(given.getmembers(), key=lambda member: member.name):
            content = given.extractfile(member) if member.isreg() else None
            archive.addfile(_normalized(member), content)


def _normalized(member: tarfile.TarInfo) -> tarfile.TarInfo:
    return member.replace(mtime=0, uid=0, gid=0, uname="", gname="")


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    member = tarfile.TarInfo(name)
    member.mode = mode
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True).encode("utf-8")
