"""Every error BigFleet raises on purpose.

BigFleetError
├── InvalidInput        the sender's fault: names the object, the field, the value and the cure
├── IllegalTransition   an order that the object's lifecycle does not allow
├── UnknownObject       a name that nobody here knows
├── Fenced              an order from a deposed sender; final, an incident
└── Unavailable         a peer did not answer; trying again later may help
"""

from __future__ import annotations


class BigFleetError(Exception):
    """Base of all errors raised on purpose; its text is fit to be shown to a person."""


class InvalidInput(BigFleetError):
    """Somebody sent something that cannot be right.

    `what` names object and field (`machine m-1: price_per_hour`), `value` is what was sent, `hint`
    says what would be accepted.
    """

    def __init__(self, what: str, value: object, hint: str) -> None:
        super().__init__(f"{what}: {value!r} {hint}")
        self.what, self.value, self.hint = what, value, hint


class IllegalTransition(BigFleetError):
    """An event that the object's present state does not allow."""

    def __init__(self, name: str, state: str, event: str, allowed: str) -> None:
        super().__init__(f"{name} is {state}: {event} is not possible there ({allowed})")
        self.name, self.state, self.event = name, state, event


class UnknownObject(BigFleetError):
    """A reference to something that does not exist here."""


class Fenced(BigFleetError):
    """The order is not newer than one already obeyed: its sender has been replaced."""


class Unavailable(BigFleetError):
    """The peer gave no answer, or said that it cannot serve now."""
