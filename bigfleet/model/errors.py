"""Every error BigFleet raises on purpose.

BigFleetError
├── InvalidInput        invalid request; names the object, the field, the value and a hint
├── IllegalTransition   a request that the object's lifecycle does not allow
├── UnknownObject       a reference to an object that does not exist
├── Fenced              a request from a sender that has been replaced; not retryable
└── Unavailable         a peer did not answer; retryable
"""

from __future__ import annotations

import msgspec

UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError)
"""What decoding damaged bytes raises: msgspec leaves those that are no UTF-8 to Python."""
_MAX_SHOWN = 300


class BigFleetError(Exception):
    """Base of all errors raised on purpose; its text may be shown to users."""


class InvalidInput(BigFleetError):
    """An invalid value in a request or a setting.

    `what` names object and field (`machine m-1: price_per_hour`), `value` is what was received,
    `hint` says what is accepted. Of a long value the message shows the beginning, so that the hint
    is not cut off where messages are.
    """

    def __init__(self, what: str, value: object, hint: str) -> None:
        shown = repr(value)
        if len(shown) > _MAX_SHOWN:
            shown = f"{shown[:_MAX_SHOWN]}..."
        super().__init__(f"{what}: {shown} {hint}")
        self.what, self.value, self.hint = what, value, hint


class IllegalTransition(BigFleetError):
    """An event that the object's current state does not allow."""

    def __init__(self, name: str, state: str, event: str, allowed: str) -> None:
        super().__init__(f'{name} is {state}, which does not allow "{event}" ({allowed})')
        self.name, self.state, self.event = name, state, event


class UnknownObject(BigFleetError):
    """A reference to an object that does not exist."""


class Fenced(BigFleetError):
    """The request is not newer than one already accepted: its sender has been replaced."""


class Unavailable(BigFleetError):
    """The peer did not answer, or reported that it cannot serve now."""
