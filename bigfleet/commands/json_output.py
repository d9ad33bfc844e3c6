"""Messages as JSON."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message


def to_json_dict(message: Message) -> dict[str, Any]:
    """All fields under their wire names, sorted, because protobuf maps have no order. Zero and
    empty values are included: a program that reads `free_machines` finds it on a full fleet too.
    """
    return _ordered(
        MessageToDict(
            message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
    )


def _ordered(data: dict[str, Any]) -> dict[str, Any]:
    return {name: _ordered_value(data[name]) for name in sorted(data)}


def _ordered_value(value: Any) -> Any:
    if isinstance(value, dict):
        return _ordered(value)
    return [_ordered_value(each) for each in value] if isinstance(value, list) else value
