"""Errors are for people: they name the object, show the value and say what is accepted."""

from __future__ import annotations

from bigfleet.model.errors import InvalidInput


def test_a_long_value_does_not_push_the_hint_out_of_sight() -> None:
    """Messages on the wire are cut at a thousand characters."""
    message = str(InvalidInput("need 1: group", "x" * 100_000, "repeats another need's"))
    assert message.startswith("need 1: group: 'xxx")
    assert message.endswith("... repeats another need's")
    assert len(message) < 400


def test_a_short_value_is_shown_whole() -> None:
    assert str(InvalidInput("a", [1, 2], "is too long")) == "a: [1, 2] is too long"
