"""Which systems there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from loaddriver.errors import ProfileError
from loaddriver.profile.hints import did_you_mean
from tests.scenarios.systems.bigfleet import BigFleet
from tests.scenarios.systems.static_nodes import StaticNodes
from tests.scenarios.systems.system import System

SYSTEMS: Mapping[str, Callable[[], System]] = {"bigfleet": BigFleet, "static-nodes": StaticNodes}
USUAL = "bigfleet"


def system_of(name: str) -> Callable[[], System]:
    """What makes the system of that name; the usual one for "". ProfileError for another."""
    if (name or USUAL) not in SYSTEMS:
        raise ProfileError([f"SYSTEM={name}: there is no such system{did_you_mean(name, SYSTEMS)}"])
    return SYSTEMS[name or USUAL]
