"""Identities of BigFleet's roles in a run, from a CA in the run's data directory."""

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
    """The identity of `name`, created at its first use and kept for restarts. A read-only one is
    created with it.
    """
    out = data_directory / _FOLDER
    missing = [n for n in (name, _READ_ONLY) if not issuing.directory_of(out, n).exists()]
    issuing.issue(out, missing, _VALIDITY)
    return Identity(issuing.directory_of(out, name))


def read_only(data_directory: Path) -> Path:
    """The folder of the read-only identity, once a role has been started."""
    return issuing.directory_of(data_directory / _FOLDER, _READ_ONLY)
