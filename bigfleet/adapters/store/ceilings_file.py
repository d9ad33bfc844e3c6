"""Cluster ceilings from a YAML file that an administrator writes, reloaded when it changes.

    default: {priority: 1000, machines: 50, dollarsPerHour: 100}
    clusters:
      prod-1: {priority: unlimited, machines: 500}

A key that a cluster omits has the default's value; one that the default omits is unlimited.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from bigfleet.model.ceiling import HIGHEST_PRIORITY, Ceiling, Ceilings
from bigfleet.model.errors import InvalidInput
from bigfleet.observe import metrics

UNLIMITED = "unlimited"
_MAX_CHARACTERS = 2**24
_MAX_DOLLARS = 1e12

_LOG = logging.getLogger(__name__)

# A file's mtime, size and inode; None while there is none.
_Version = tuple[int, int, int] | None


class CeilingsFile:
    """The last valid content of a file. An invalid change is logged once."""

    def __init__(self, path: Path) -> None:
        """InvalidInput if the file cannot be read or is invalid."""
        self._path = path
        self._version = _version(path)
        self._ceilings = _read(path)

    def current(self) -> Ceilings:
        """The ceilings in force: those of the last valid content."""
        version = _version(self._path)
        if version != self._version:
            self._version = version
            self._reload()
        return self._ceilings

    def _reload(self) -> None:
        try:
            self._ceilings = _read(self._path)
        except InvalidInput as error:
            metrics.shard_ceilings_rejected.set(1)
            _LOG.error("cluster ceilings not reloaded, the previous ones stay in force: %s", error)
        else:
            metrics.shard_ceilings_rejected.set(0)
            named = len(self._ceilings.clusters)
            _LOG.info("cluster ceilings reloaded", extra={"clusters": named})


def _version(path: Path) -> _Version:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: Path) -> Ceilings:
    def invalid(why: str) -> InvalidInput:
        return InvalidInput("file of cluster ceilings", str(path), why)

    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_MAX_CHARACTERS + 1)
    except OSError as error:
        raise invalid(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise invalid(f"cannot be read: {error}") from None
    if len(text) > _MAX_CHARACTERS:
        raise invalid(f"has more than {_MAX_CHARACTERS} characters")
    try:
        content = yaml.load(text, _StrictLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise invalid(f"is not valid YAML: {' '.join(str(error).split())}") from None
    return _ceilings_of(content, f"ceilings {path}")


def _ceilings_of(content: object, what: str) -> Ceilings:
    top = _mapping(content, what, ("default", "clusters"))
    default = _ceiling(top.get("default", {}), f"{what}: default", Ceiling())
    clusters = {
        name: _ceiling(entry, f"{what}: clusters: {name}", default)
        for name, entry in _mapping(top.get("clusters", {}), f"{what}: clusters").items()
    }
    return Ceilings(default, clusters)


def _mapping(value: object, what: str, known: Collection[str] | None = None) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidInput(what, value, "is not a mapping of keys to values")
    for key in value:
        if not isinstance(key, str) or not key:
            raise InvalidInput(what, key, "is not a name; put quotes around numbers")
        if known is not None and key not in known:
            raise InvalidInput(what, key, f"is unknown; valid keys are {', '.join(known)}")
    return value


def _ceiling(entry: object, what: str, default: Ceiling) -> Ceiling:
    given = _mapping(entry, what, [key for _, key, _ in _FIELDS])
    seen_keys: dict[str, Any] = {
        field: read(given[key], f"{what}: {key}") for field, key, read in _FIELDS if key in given
    }
    return replace(default, **seen_keys)


def _priority(value: Any, what: str) -> int:
    if value == UNLIMITED:
        return HIGHEST_PRIORITY
    if type(value) is int and -(2**31) <= value <= HIGHEST_PRIORITY:
        return value
    raise InvalidInput(what, value, f"is neither a whole number of 32 bits nor {UNLIMITED}")


def _machines(value: Any, what: str) -> float:
    if value == UNLIMITED:
        return math.inf
    if type(value) is int and 0 <= value < 2**31:
        return value
    raise InvalidInput(what, value, f"is neither a whole number >= 0 nor {UNLIMITED}")


def _dollars(value: Any, what: str) -> float:
    if value == UNLIMITED:
        return math.inf
    if type(value) in (int, float) and 0 <= value <= _MAX_DOLLARS:
        return float(value)
    raise InvalidInput(what, value, f"is neither an amount >= 0 nor {UNLIMITED}")


# A ceiling's field, its key in the file, and its parser.
_FIELDS: Sequence[tuple[str, str, Callable[[Any, str], float]]] = (
    ("priority", "priority", _priority),
    ("machines", "machines", _machines),
    ("dollars_per_hour", "dollarsPerHour", _dollars),
)


class _StrictLoader(yaml.SafeLoader):
    """Rejects duplicate keys, of which only the last would count."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """As of SafeLoader."""
        seen_keys: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen_keys:
                raise yaml.constructor.ConstructorError(
                    None, None, f"duplicate key {key!r}", key_node.start_mark
                )
            seen_keys.add(key if isinstance(key, str) else None)
        return super().construct_mapping(node, deep)
