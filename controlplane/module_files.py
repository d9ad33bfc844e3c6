"""The files of a pinned module, downloaded and verified by Go."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from controlplane.compiler import find_compiler
from controlplane.errors import BinaryError
from controlplane.pins import MODULES_DIRECTORY, Module
from controlplane.request import BinaryRequest

_DOWNLOAD_SECONDS = 300.0


def module_files(module: Module, path: str, request: BinaryRequest) -> Path:
    """The directory in Go's module cache of `path`, at the version that module pins.

    Downloads it if necessary. Raises BinaryError: no compiler, or the download failed.
    """
    purpose = f"reading the files of {path} {module.version}"
    compiler = find_compiler(request.environment, request.platform, purpose)
    command = [compiler.path, "mod", "download", "-json", path]
    try:
        answer = subprocess.run(
            command,
            cwd=MODULES_DIRECTORY / module.name,
            env=dict(compiler.environment),
            capture_output=True,
            text=True,
            timeout=_DOWNLOAD_SECONDS,
            check=False,
        )
        listing = json.loads(answer.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise BinaryError(f"{purpose} failed: `{' '.join(command)}`: {error}") from error
    if "Dir" not in listing:
        reason = listing.get("Error", answer.stderr.strip())
        raise BinaryError(f"{purpose} failed: `{' '.join(command)}`: {reason}")
    return Path(listing["Dir"])
