"""Whose identity a process of a chart needs."""

from __future__ import annotations

from bigfleet.api.auth.identity import Principal
from tests.charts.helm_rig import (
    Replica,
)


def principal(replica: Replica) -> Principal | None:
    """Whose identity the process needs by its flags."""
    match replica.arguments[0]:
        case "coordinator":
            return Principal("coordinator", replica.flag("--node-id"))
        case "shard":
            return Principal("shard", replica.flag("--shard-id"))
        case "operator":
            return Principal("cluster", replica.flag("--cluster-id"))
        case "provider":
            return Principal("provider", "kwok")
    return None
