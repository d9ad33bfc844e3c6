"""Who started a run in an existing cluster, as an annotation of the run's namespace says."""

from __future__ import annotations

import getpass
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path

from loaddriver.substrates.existing.contexts import ACCOUNT_FOLDER, in_pod

# Of the name of a Job's pod, which ends with as many random characters.
_LONGEST_PREFIX, _RANDOM = 58, 5


def starter(environment: Mapping[str, str], account: Path = ACCOUNT_FOLDER) -> str:
    """`USER on HOST`; in a pod with a ServiceAccount in `account` it is `pod NAMESPACE/NAME`."""
    namespace = account / "namespace"
    if in_pod(environment) and namespace.is_file():
        return f"pod {namespace.read_text().strip()}/{platform.node()}"
    return f"{_user()} on {platform.node()}"


def started_by_job(run: str, namespace: str, job: str) -> bool:
    """Whether the annotation `run` names a pod of this Job."""
    pods = f" started by pod {namespace}/{f'{job}-'[:_LONGEST_PREFIX]}"
    return re.search(f"{re.escape(pods)}[a-z0-9]{{{_RANDOM}}}$", run) is not None


def _user() -> str:
    """His name, or in a container that knows no users his number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"
