"""What can go wrong while the binaries are got, told apart by whose fault it is."""

from __future__ import annotations


class BinaryError(Exception):
    """This machine could not provide a binary (exit code 6): says which step failed and why."""


class BinaryUsageError(Exception):
    """What the caller asked for cannot be meant (exit code 2): says which value and the fix."""
