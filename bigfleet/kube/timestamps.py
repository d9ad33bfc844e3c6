"""Timestamps in RFC 3339, as Kubernetes writes its types Time and MicroTime."""

from __future__ import annotations

import math
from datetime import UTC, datetime


def rfc3339(unix_seconds: float) -> str:
    """A Time: rounded down to whole seconds."""
    whole = datetime.fromtimestamp(math.floor(unix_seconds), UTC)
    return whole.strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(unix_seconds: float) -> str:
    """A MicroTime."""
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
