"""Errors of locating, downloading and building the binaries."""

from __future__ import annotations


class BinaryError(Exception):
    """This machine cannot provide a binary (exit code 6); states the failed step and the cause."""


class BinaryUsageError(Exception):
    """The request has an invalid value (exit code 2); states the value and the hint."""
