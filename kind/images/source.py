"""Which state of the sources an image was made from, as far as git knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kind.command import run
from kind.errors import KindError


@dataclass(frozen=True)
class Source:
    """A commit ("-dirty" behind it when files differ from it) and the repository's address.

    Either is empty where it is not known.
    """

    revision: str
    address: str


def source_of(checkout: Path, environment: Mapping[str, str]) -> Source:
    """What git says about a checkout."""

    def git(*arguments: str) -> str:
        try:
            answer = run(["git", "-C", str(checkout), *arguments], environment)
        except KindError:
            return ""
        return answer.decode("utf-8").strip()

    return Source(
        revision=git("describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"),
        address=git("remote", "get-url", "origin"),
    )
