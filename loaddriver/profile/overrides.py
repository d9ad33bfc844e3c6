"""Changes to a profile from the command line, made before anything is checked."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from loaddriver.errors import ProfileError
from loaddriver.profile.yaml_reader import parse_yaml


def apply_overrides(
    raw: Any, overrides: Sequence[str], seed: int | None, where: str
) -> tuple[Any, tuple[str, ...]]:
    """The changed copy of a parsed profile, and the dotted keys that were changed.

    Each override reads `dotted.key=value`, its value in YAML. A later one wins.
    Raises ProfileError for one that cannot be applied.
    """
    if not isinstance(raw, dict):
        return raw, ()
    changes = [_parsed(override) for override in overrides]
    if seed is not None:
        changes.append(("seed", seed))
    changed = copy.deepcopy(raw)
    for path, value in changes:
        _set(changed, path, value, where)
    return changed, tuple(path for path, _ in changes)


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
            raise ProfileError([f"SET {path}: {held} is a single value in {where}, it has no keys"])
        inner = child
    inner[last] = value
