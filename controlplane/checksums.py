"""SHA-256 sums of released files: the pinned ones, and how a maintainer pins more.

checksums.json maps a released file's name ("etcd-3.7.3-linux-amd64") to the sum of that file as it
is published (for etcd: of the archive). A file without an entry is built from source instead.
`python -m controlplane pin` fills it from the sums that the projects publish; look at its
difference before committing it, because whoever controls those hosts at that moment is trusted
from then on. kwok's releases come with no list of sums, so kwok is built unless somebody who has
checked a file by other means adds its sum by hand.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from controlplane.download import Unavailable, read_text
from controlplane.errors import BinaryError
from controlplane.pins import Module, filled, release_name

CHECKSUMS_FILE = Path(__file__).parent / "checksums.json"
PINNED_ARCHITECTURES = ("amd64", "arm64")

_SUM = re.compile(r"[0-9a-f]{64}")


def pinned_checksums(path: Path = CHECKSUMS_FILE) -> dict[str, str]:
    """The pinned sums. Raises BinaryError for a file that is not a map of names to sums."""
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
    """Asks the release hosts for every sum they publish for these modules, by file name.

    Raises BinaryError where a host does not answer or its listing lacks the file.
    """
    sums: dict[str, str] = {}
    for module in modules:
        if module.release.checksum_path is None:
            progress(
                f"{module.name}: no checksums are published for it; it will be built from source"
            )
            continue
        for architecture in PINNED_ARCHITECTURES:
            for component in module.components:
                name = release_name(module, component, architecture)
                base_url = base_urls[module.name]
                sums[name] = _fetch_sum(module, component, architecture, base_url)
                progress(f"{name}: {sums[name]}")
    return sums


def _fetch_sum(module: Module, component: str, architecture: str, base_url: str) -> str:
    template = module.release.checksum_path or ""
    url = f"{base_url}/{filled(template, module, component, architecture)}"
    try:
        listing = read_text(url)
    except Unavailable as error:
        raise BinaryError(f"nothing was pinned: {error}") from error
    file_path = filled(module.release.file_path, module, component, architecture)
    checksum = published_sum(listing, file_path.rpartition("/")[2])
    if checksum is None:
        raise BinaryError(f"nothing was pinned: {url} lists no sum for {file_path}")
    return checksum


def add_checksums(sums: Mapping[str, str], path: Path = CHECKSUMS_FILE) -> None:
    """Merges sums into the pinned ones; readers see the old file or the new one."""
    merged = {**pinned_checksums(path), **sums}
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(merged, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(draft, path)
