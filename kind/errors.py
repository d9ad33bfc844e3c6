"""Errors of kind clusters and images."""

from __future__ import annotations


class KindError(Exception):
    """This machine cannot do it (exit code 6); states the failed step, the cause and a hint."""


class KindUsageError(Exception):
    """The request has an invalid value (exit code 2); states the value and a hint."""
