"""Runs git as somebody whose own settings do not matter."""

from __future__ import annotations

import subprocess
from pathlib import Path

_WHO = ("-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "init.defaultBranch=main")


def git(folder: Path, *arguments: str) -> str:
    """What git prints in `folder`."""
    command = ["git", "-C", str(folder), *_WHO, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
