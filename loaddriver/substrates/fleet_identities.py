"""Identities of BigFleet's roles in a run, from a CA in the run's data directory: its own one, or
that of a fleet which a part of the run belongs to.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from bigfleet.api.auth import issuing
from bigfleet.api.auth.identity import Identity, Principal
from bigfleet.model.errors import InvalidInput

_FOLDER = "identities"
# Longer than any run.
_VALIDITY = timedelta(days=30)
_READ_ONLY = Principal("readonly")


def adopt(data_directory: Path, made_by_certs: Path) -> None:
    """Take the authority of a folder that `bigfleet certs` made for all identities of the run.

    Call it before the first is issued. InvalidInput if the folder has none that can be used.
    """
    authority = issuing.authority_directory(data_directory / _FOLDER)
    authority.mkdir(mode=0o700, parents=True)
    source = issuing.authority_directory(made_by_certs)
    for name in issuing.AUTHORITY_FILES:
        try:
            shutil.copy(source / name, authority / name)
        except OSError as error:
            hint = f"cannot be read ({error.strerror}); `bigfleet certs --out DIR` makes it"
            raise InvalidInput("authority", str(source / name), hint) from None
        (authority / name).chmod(0o600)


def issue(data_directory: Path, name: Principal) -> Identity:
    """The identity of `name`, created at its first use and kept for restarts. A read-only one is
    created with it.
    """
    return issue_all(data_directory, [name])[0]


def issue_all(data_directory: Path, names: Sequence[Principal]) -> list[Identity]:
    """The identities of `names`. One after the other they would take time by their square: each
    looks at all that are there.
    """
    out = data_directory / _FOLDER
    missing = [n for n in (*names, _READ_ONLY) if not issuing.directory_of(out, n).exists()]
    issuing.issue(out, missing, _VALIDITY)
    return [Identity(issuing.directory_of(out, name)) for name in names]


def read_only(data_directory: Path) -> Path:
    """The folder of the read-only identity, once a role has been started."""
    return issuing.directory_of(data_directory / _FOLDER, _READ_ONLY)
