"""Reads YAML strictly.

PyYAML follows YAML 1.1, where `on` is a boolean, `1:30` is 90 and a duplicate key keeps its last
value. Here only `true` and `false` are booleans, numbers are decimal, and a duplicate key is an
error.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import yaml

from loaddriver.errors import ProfileError

_MERGE_TAG = "tag:yaml.org,2002:merge"
_PLAIN_SCALARS: tuple[tuple[str, str, list[str]], ...] = (
    ("merge", r"^<<$", ["<"]),
    ("bool", r"^(?:true|false)$", list("tf")),
    ("null", r"^(?:~|null|)$", ["~", "n", ""]),
    ("int", r"^[-+]?(?:0|[1-9][0-9]*)$", list("-+0123456789")),
    (
        "float",
        r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$",
        list("-+.0123456789"),
    ),
)


class _PlainLoader(yaml.CSafeLoader):
    """SafeLoader, ten times as fast, with plain scalars and unique keys."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key) for key, _ in node.value if key.tag != _MERGE_TAG]
        for position, key in enumerate(keys):
            if key in keys[:position]:
                mark = node.value[position][0].start_mark
                raise yaml.constructor.ConstructorError(None, None, f"duplicate key {key!r}", mark)
        return super().construct_mapping(node, deep=deep)


def _finite_float(loader: _PlainLoader, node: yaml.ScalarNode) -> float:
    value: float = loader.construct_yaml_float(node)
    if not math.isfinite(value):
        problem = f"{node.value} is too large a number"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
    return value


_PlainLoader.add_constructor("tag:yaml.org,2002:float", _finite_float)
for _name, _pattern, _first in _PLAIN_SCALARS:
    _PlainLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(_pattern), _first)


def parse_yaml(text: str, where: str) -> Any:
    """Parse `text`; `where` names its origin in errors.

    Raises ProfileError with the line and column of a syntax error.
    """
    try:
        return yaml.load(text, Loader=_PlainLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f" line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ProfileError([f"{where}:{place} {error.problem}"]) from error
    except (yaml.YAMLError, TypeError, ValueError) as error:
        raise ProfileError([f"{where}: invalid YAML: {error}"]) from error


def read_yaml(path: Path, where: str) -> Any:
    """Read and parse a file. Raises ProfileError if it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise ProfileError([f"{where}: cannot be read: {reason}"]) from error
    return parse_yaml(text, where)
