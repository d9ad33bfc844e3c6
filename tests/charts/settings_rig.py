"""All settings of a chart, by its values and by its schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# Their keys are Kubernetes', or the user's.
OPEN = {"annotations", "clusters", "flags", "labels", "limits", "nodeSelector", "requests"}


def keys(values: Any, prefix: str = "") -> Iterator[str]:
    """The paths of all settings."""
    if not isinstance(values, dict) or not values or prefix.rpartition(".")[2] in OPEN:
        yield prefix
        return
    for key, value in values.items():
        yield from keys(value, f"{prefix}.{key}" if prefix else key)


def resolved(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = root["$defs"][reference] if reference else schema
    return found


def schema_keys(schema: dict[str, Any], root: dict[str, Any], prefix: str = "") -> Iterator[str]:
    schema = resolved(schema, root)
    if "properties" not in schema or prefix.rpartition(".")[2] in OPEN:
        yield prefix
        return
    assert schema["additionalProperties"] is False, f"{prefix} takes any key"
    for key, value in schema["properties"].items():
        yield from schema_keys(value, root, f"{prefix}.{key}" if prefix else key)
