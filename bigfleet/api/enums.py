"""Conversion of wire enums to the model's."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import TypeVar

from bigfleet.model.errors import InvalidInput

_Enum = TypeVar("_Enum", bound=IntEnum)


def enum_member(kind: Callable[[int], _Enum], value: int, what: str) -> _Enum:
    """The member with this value; InvalidInput, prefixed by `what`, when there is none."""
    try:
        return kind(int(value))
    except ValueError:
        raise InvalidInput(what, int(value), "is not a known value") from None
