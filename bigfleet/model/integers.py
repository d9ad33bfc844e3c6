"""Label values that are compared as integers."""

from __future__ import annotations


def is_integer(value: str) -> bool:
    """Whether Kubernetes parses a label value as an integer for Gt and Lt."""
    try:
        return -(2**63) <= int(value) < 2**63 and value.strip() == value and "_" not in value
    except ValueError:
        return False
