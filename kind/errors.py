"""What can go wrong around kind, told apart by whose fault it is."""

from __future__ import annotations


class KindError(Exception):
    """This machine could not do it (exit code 6): says which step failed, why, and what to do."""


class KindUsageError(Exception):
    """What was asked for cannot be meant (exit code 2): says which value and the fix."""
