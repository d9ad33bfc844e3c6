"""Overrides of a profile from the command line, applied before it is checked."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from loaddriver.errors import ProfileError
from loaddriver.profile.yaml_reader import parse_yaml


def apply_overrides(
    raw: Any, overrides: Sequence[str], seed: int | None, where: str
) -> tuple[Any, tuple[str, ...]]:
    """Return a changed copy of a parsed profile, and the dotted keys that changed.

    Each override is `dotted.key=value` with a YAML value; the last one of a key wins.
    Raises ProfileError with every override that cannot be applied.
    """
    if not isinstance(raw, dict):
        return raw, ()
    changed = copy.deepcopy(raw)
    paths: list[str] = []
    problems: list[str] = []
    for override in overrides:
        try:
            path, value = _parsed(override)
            _set(changed, path, value, where)
        except ProfileError as error:
            problems.extend(error.problems)
        else:
            paths.append(path)
    if problems:
        raise ProfileError(problems)
    if seed is not None:
        changed["seed"] = seed
        paths.append("seed")
    return changed, tuple(paths)


def _parsed(override: str) -> tuple[str, Any]:
    path, equals, text = override.partition("=")
    if not equals or not path.strip():
        raise ProfileError([f"SET {override!r}: write key=value, for example SET=soak.seconds=120"])
    return path.strip(), parse_yaml(text, f"SET {path.strip()}")


def _set(raw: dict[str, Any], path: str, value: Any, where: str) -> None:
    *parents, last = path.split(".")
    inner = raw
    for depth, key in enumerate(parents):
        child = inner.setdefault(key, {})
        if not isinstance(child, dict):
            held = ".".join(parents[: depth + 1])
            raise ProfileError([f"SET {path}: {held} is a single value in {where} and has no keys"])
        inner = child
    inner[last] = value
