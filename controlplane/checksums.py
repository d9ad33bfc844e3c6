"""SHA-256 sums of released files: pinned in checksums.json, or published by the project.

checksums.json maps a released file's name ("etcd-3.7.3-linux-amd64") to the sum of that file as it
is published (for etcd: of the archive). A pinned sum takes precedence over a published one, which
proves integrity but not authenticity: whoever controls the host controls both. `python -m
controlplane pin` pins the sums that are published at that moment; review the diff before
committing it. metrics-server publishes no sums that we know of, so it is built unless a sum is
pinned by hand.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from controlplane.download import NotFound, Unavailable, read_text
from controlplane.errors import BinaryError
from controlplane.pins import Module, filled, release_name

CHECKSUMS_FILE = Path(__file__).parent / "checksums.json"
PINNED_ARCHITECTURES = ("amd64", "arm64")

_SUM = re.compile(r"[0-9a-f]{64}")


def pinned_checksums(path: Path = CHECKSUMS_FILE) -> dict[str, str]:
    """The pinned sums. Raises BinaryError if the file is not a map of names to sums."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BinaryError(f"cannot read the pinned checksums in {path}: {error}") from error
    if not isinstance(entries, dict):
        raise BinaryError(f"{path} must hold one JSON object: file name -> SHA-256 in hexadecimal")
    for name, checksum in entries.items():
        if not isinstance(checksum, str) or not _SUM.fullmatch(checksum):
            raise BinaryError(f"{path}: {name}: {checksum!r} is not a SHA-256 sum (64 hex digits)")
    return entries


def published_sum(listing: str, file_name: str) -> str | None:
    """The sum of file_name in a published listing: lines "SUM  NAME", or a lone sum."""
    for line in listing.splitlines():
        words = line.split()
        names_file = len(words) == 1 or (len(words) == 2 and words[1].lstrip("*") == file_name)
        if names_file and _SUM.fullmatch(words[0].lower()):
            return words[0].lower()
    return None


def fetch_published_sums(
    modules: tuple[Module, ...],
    base_urls: Mapping[str, str],
    progress: Callable[[str], None],
) -> dict[str, str]:
    """All sums that the release hosts publish for these modules, by file name.

    Raises BinaryError if a host does not answer or its listing lacks the file.
    """
    sums: dict[str, str] = {}
    for module in modules:
        if module.release.checksum_path is None:
            progress(f"{module.name}: publishes no checksums; it is built from source")
            continue
        for architecture in PINNED_ARCHITECTURES:
            for component in module.components:
                name = release_name(module, component, architecture)
                base_url = base_urls[module.name]
                sums[name] = _fetch_sum(module, component, architecture, base_url)
                progress(f"{name}: {sums[name]}")
    return sums


def _fetch_sum(module: Module, component: str, architecture: str, base_url: str) -> str:
    try:
        return read_published_sum(module, component, architecture, base_url)
    except Unavailable as error:
        raise BinaryError(f"nothing was pinned: {error}") from error


def read_published_sum(module: Module, component: str, architecture: str, base_url: str) -> str:
    """The sum that a module's project publishes for a released file.

    Raises NotFound if there is none, Unavailable if the host does not answer.
    """
    if module.release.checksum_path is None:
        raise NotFound(f"{component} {module.version}: no checksum is pinned or published")
    url = f"{base_url}/{filled(module.release.checksum_path, module, component, architecture)}"
    file_path = filled(module.release.file_path, module, component, architecture)
    checksum = published_sum(read_text(url), file_path.rpartition("/")[2])
    if checksum is None:
        raise NotFound(f"{url} lists no sum for {file_path}")
    return checksum


def add_checksums(sums: Mapping[str, str], path: Path = CHECKSUMS_FILE) -> None:
    """Merge sums into the pinned ones; the file is replaced atomically."""
    merged = {**pinned_checksums(path), **sums}
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(merged, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(draft, path)
