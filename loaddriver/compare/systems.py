"""Checkouts of revisions, each with an environment of its own, and copies of configurations."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from loaddriver.errors import InfrastructureError, ProfileError
from loaddriver.run.provenance import git

WORKING_TREE = "."
"""Names the harness's own checkout as it is, with what is not committed."""
_DIGITS = 12
_GIT_TIMEOUT_SECONDS = 300


def commit_of(repository: Path, revision: str) -> str:
    """The commit that a revision names. Raises ProfileError."""
    try:
        return _git(
            repository, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"
        ).strip()
    except (OSError, subprocess.SubprocessError):
        raise ProfileError(
            [f"{revision}: no revision of {repository}; give a commit, tag or branch"]
        ) from None


def checkout(
    repository: Path, revision: str, systems: Path, say: Callable[[str], None]
) -> Path | None:
    """A worktree of a revision below `systems`, set up; None for the working tree itself.

    One that is there is used again: a commit does not change. Raises ProfileError, or
    InfrastructureError if it cannot be set up.
    """
    if revision == WORKING_TREE:
        return None
    commit = commit_of(repository, revision)
    folder = (systems / commit[:_DIGITS]).resolve()
    try:
        if not folder.exists():
            say(f"{revision}: checking out {commit[:_DIGITS]} in {folder}")
            systems.mkdir(parents=True, exist_ok=True)
            _git(repository, "worktree", "prune")
            _git(repository, "worktree", "add", "--detach", str(folder), commit)
        _require_unchanged(folder, commit)
    except (OSError, subprocess.SubprocessError) as error:
        raise InfrastructureError(f"{folder}: cannot check out {commit}: {error}") from None
    log = systems / f"{commit[:_DIGITS]}-setup.log"
    with log.open("w") as output:
        done = subprocess.run(
            ["make", "-C", str(folder), "setup"], stdout=output, stderr=output, check=False
        )
    if done.returncode:
        raise InfrastructureError(f"{folder}: `make setup` failed; its output is in {log}")
    return folder


def _require_unchanged(folder: Path, commit: str) -> None:
    at, changed = _git(folder, "rev-parse", "HEAD").strip(), _git(folder, "status", "--porcelain")
    if at != commit or changed:
        raise InfrastructureError(
            f"{folder}: not {commit} as committed; remove it with `git worktree remove --force`"
        )


def _git(at: Path, *arguments: str) -> str:
    return git(at, *arguments, timeout_seconds=_GIT_TIMEOUT_SECONDS)


def kept_copy(folder: Path, file: Path) -> Path:
    """A copy of the file in this folder, so that an edit meanwhile changes no later run."""
    folder.mkdir(parents=True, exist_ok=True)
    copy = folder / f"{len(list(folder.iterdir())) + 1}-{file.name}"
    shutil.copyfile(file, copy)
    return copy.resolve()
