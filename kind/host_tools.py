"""Required host tools, and the packages that provide them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence

from kind.errors import KindError

PACKAGES = {
    "debootstrap": "debootstrap",
    "iptables": "iptables",
    "runc": "runc",
    "tar": "tar",
}


def missing_tools(tools: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """One line for each tool that is not on PATH."""
    path = environment.get("PATH", "")
    return tuple(
        f"{tool} is missing: install it (Debian: apt-get install {PACKAGES[tool]})"
        for tool in tools
        if shutil.which(tool, path=path) is None
    )


def require_tools(tools: Sequence[str], environment: Mapping[str, str]) -> None:
    """Raise KindError with one line for each tool that is not on PATH."""
    lines = missing_tools(tools, environment)
    if lines:
        raise KindError("\n".join(lines))
