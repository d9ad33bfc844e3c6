"""Who BigFleet's parts are to each other in one run, by an authority that ends with its data."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from bigfleet.api.auth import issuing
from bigfleet.api.auth.identity import Identity, Principal

_FOLDER = "identities"
# Longer than any run.
_VALIDITY = timedelta(days=30)
_READ_ONLY = Principal("readonly")


def issue(data_directory: Path, name: Principal) -> Identity:
    """The identity of `name`, made at its first use and kept when its role starts again. One for
    looking only is made beside it.
    """
    out = data_directory / _FOLDER
    missing = [n for n in (name, _READ_ONLY) if not issuing.directory_of(out, n).exists()]
    issuing.issue(out, missing, _VALIDITY)
    return Identity(issuing.directory_of(out, name))


def read_only(data_directory: Path) -> Path:
    """Where the identity for looking only is, once a role has been started."""
    return issuing.directory_of(data_directory / _FOLDER, _READ_ONLY)
