"""The part of requirements.lock that one image needs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from kind.errors import KindError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def normal(name: str) -> str:
    """A package's name as every index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def entries(lock: str) -> dict[str, str]:
    """The lock's entries, hashes and markers with them, by normal package name."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in lock.splitlines():
        if line[:1].isalnum():
            name = normal(_leading_name(line))
        if name:
            found.setdefault(name, []).append(line)
    return {name: "\n".join(lines) for name, lines in found.items()}


def needed_entries(
    lock: str, packages: Iterable[str], required_by: Callable[[str], Iterable[str]]
) -> str:
    """The entries of these packages and of all that they need, in the lock's order.

    required_by gives a package's requirements as its metadata words them. Those that hold only on
    other platforms are kept out by the markers in the lock itself. Raises KindError for a package
    that the lock does not pin.
    """
    pinned = entries(lock)
    wanted = _closure([normal(package) for package in packages], pinned, required_by)
    return "\n".join(text for name, text in pinned.items() if name in wanted) + "\n"


def _closure(
    roots: list[str], pinned: Mapping[str, str], required_by: Callable[[str], Iterable[str]]
) -> set[str]:
    if unknown := sorted(set(roots) - set(pinned)):
        raise KindError(f"requirements.lock does not pin {', '.join(unknown)}: run `make lock`")
    wanted: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name not in wanted and name in pinned:
            wanted.add(name)
            waiting += [
                normal(_leading_name(requirement))
                for requirement in required_by(name)
                if "extra ==" not in requirement
            ]
    return wanted


def _leading_name(requirement: str) -> str:
    match = _NAME.match(requirement)
    if match is None:
        raise KindError(f"{requirement!r} names no package")
    return match[0]
