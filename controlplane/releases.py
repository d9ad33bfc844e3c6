"""Gets a component from its project's releases, where its checksum is pinned."""

from __future__ import annotations

import shutil
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from controlplane.download import Unavailable, download
from controlplane.errors import BinaryError
from controlplane.pins import Module, filled, release_name
from controlplane.request import BinaryRequest

_MEBIBYTE = 1 << 20


@dataclass
class Releases:
    """The release hosts, as far as this request may use them.

    A host that failed once is not asked again: each try may cost seconds.
    """

    request: BinaryRequest
    progress: Callable[[str], None]
    failed_hosts: set[str] = field(default_factory=set)

    def fetch(self, module: Module, component: str, staging: Path) -> Path | None:
        """The verified binary in the staging folder, or None where a build must do.

        Raises BinaryError for a file that is not the pinned one.
        """
        architecture = self.request.platform.architecture
        checksum = self.request.checksums.get(release_name(module, component, architecture))
        if checksum is None or self.request.platform.operating_system != "linux":
            return None
        path = filled(module.release.file_path, module, component, architecture)
        url = f"{self.request.release_base_urls[module.name]}/{path}"
        if urlsplit(url).netloc in self.failed_hosts:
            return None
        try:
            self.progress(f"downloading {url}")
            file = staging / f"{component}.download"
            download(url, file, checksum, self._say_bytes(component))
        except Unavailable as error:
            self.failed_hosts.add(urlsplit(url).netloc)
            self.progress(f"{error}; building from source instead")
            return None
        return _unpacked(file, module, component, architecture)

    def _say_bytes(self, component: str) -> Callable[[int], None]:
        last_line_seconds = time.monotonic()

        def say(received_bytes: int) -> None:
            nonlocal last_line_seconds
            if time.monotonic() - last_line_seconds >= self.request.progress_interval_seconds:
                last_line_seconds = time.monotonic()
                self.progress(f"downloading {component}: {received_bytes // _MEBIBYTE} MiB so far")

        return say


def _unpacked(file: Path, module: Module, component: str, architecture: str) -> Path:
    """The binary itself. Only its bytes are taken out of an archive, never a path."""
    if module.release.archive_member is None:
        return file
    member = filled(module.release.archive_member, module, component, architecture)
    binary = file.with_suffix(".unpacked")
    try:
        with tarfile.open(file) as archive, binary.open("wb") as output:
            content = archive.extractfile(member)
            if content is None:
                raise KeyError(member)
            shutil.copyfileobj(content, output)
    except (tarfile.TarError, KeyError, EOFError) as error:
        raise BinaryError(f"the release of {component} holds no file {member}: {error}") from error
    return binary
