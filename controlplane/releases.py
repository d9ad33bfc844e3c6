"""Downloads components from their projects' releases."""

from __future__ import annotations

import shutil
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from controlplane.checksums import read_published_sum
from controlplane.download import Checksum, NotFound, Unavailable, download
from controlplane.errors import BinaryError
from controlplane.pins import Module, filled, release_name
from controlplane.request import BinaryRequest

_MEBIBYTE = 1 << 20


@dataclass
class Releases:
    """The release hosts of a request.

    A host that failed is not asked again: each attempt may take seconds. A missing file or
    checksum is not a failure of its host.
    """

    request: BinaryRequest
    progress: Callable[[str], None]
    failed_hosts: set[str] = field(default_factory=set)
    reported: set[str] = field(default_factory=set)

    def fetch(self, module: Module, component: str, staging: Path) -> tuple[Path, str] | None:
        """The verified binary in the staging directory and its origin; None to build it.

        Raises BinaryError on a checksum mismatch.
        """
        platform = self.request.platform
        if self.request.from_source or not module.release.file_path:
            return None
        if platform.operating_system != "linux":
            self._report_once(f"releases are for linux, not {platform}; building from source")
            return None
        host = urlsplit(self.request.release_base_urls[module.name]).netloc
        if host in self.failed_hosts:
            return None
        try:
            return self._download(module, component, staging)
        except Unavailable as error:
            if not isinstance(error, NotFound):
                self.failed_hosts.add(host)
            self._report_once(f"{error}; building from source")
            return None

    def _download(self, module: Module, component: str, staging: Path) -> tuple[Path, str]:
        architecture = self.request.platform.architecture
        checksum = self._checksum(module, component)
        path = filled(module.release.file_path, module, component, architecture)
        url = f"{self.request.release_base_urls[module.name]}/{path}"
        self.progress(f"downloading {url}")
        file = staging / f"{component}.download"
        download(url, file, checksum, self._report_bytes(component))
        binary = _unpacked(file, module, component, architecture)
        return binary, f"downloaded, {checksum.source}"

    def _checksum(self, module: Module, component: str) -> Checksum:
        """The pinned sum, or else the published one. Raises Unavailable."""
        architecture = self.request.platform.architecture
        pinned = self.request.checksums.get(release_name(module, component, architecture))
        if pinned is not None:
            return Checksum(pinned, "pinned checksum")
        base_url = self.request.release_base_urls[module.name]
        published = read_published_sum(module, component, architecture, base_url)
        return Checksum(published, f"checksum published by {urlsplit(base_url).netloc}")

    def _report_once(self, line: str) -> None:
        if line not in self.reported:
            self.reported.add(line)
            self.progress(line)

    def _report_bytes(self, component: str) -> Callable[[int], None]:
        last_line_seconds = time.monotonic()

        def report(received_bytes: int) -> None:
            nonlocal last_line_seconds
            if time.monotonic() - last_line_seconds >= self.request.progress_interval_seconds:
                last_line_seconds = time.monotonic()
                self.progress(
                    f"downloading {component}: {received_bytes // _MEBIBYTE} MiB received"
                )

        return report


def _unpacked(file: Path, module: Module, component: str, architecture: str) -> Path:
    """The binary. Only its bytes are read from an archive, never a path."""
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
        raise BinaryError(
            f"the release of {component} does not contain {member}: {error}"
        ) from error
    return binary
