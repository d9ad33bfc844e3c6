"""Messages as data for programs."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message


def as_data(message: Message) -> dict[str, Any]:
    """All fields under the wire's names. Also those that are 0, "" or empty: a program that reads
    `free_machines` must find it on a full fleet too.
    """
    return MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
