"""Label values that are compared as numbers."""

from __future__ import annotations


def is_integer(value: str) -> bool:
    """Whether Kubernetes takes a label value for an integer when it compares by Gt or Lt."""
    try:
        return -(2**63) <= int(value) < 2**63 and value.strip() == value and "_" not in value
    except ValueError:
        return False
