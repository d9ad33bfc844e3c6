"""Two clusters, one of which needs the machines of the other."""

from __future__ import annotations

from bigfleet.engine.decision import Decision
from bigfleet.engine.snapshot import EngineConfig
from bigfleet.model.need import Need
from tests.engine.engine_rig import (
    Spec,
    action_names,
    checked,
    demand_of,
    fleet_of,
    need_of,
)

CRITICAL = 1_000_000


def critical(cpu: int, **kwargs: object) -> tuple[str, Need]:
    """A need of cluster west."""
    return "west", need_of(cpu, priority=CRITICAL, group="critical", **kwargs)  # type: ignore[arg-type]


def batch(cpu: int, priority: int = 0, **kwargs: object) -> tuple[str, Need]:
    """A need of cluster east."""
    group = f"batch-{priority}"
    return "east", need_of(cpu, priority=priority, group=group, **kwargs)  # type: ignore[arg-type]


def decided(
    specs: list[Spec], *needs: tuple[str, Need], settings: EngineConfig | None = None
) -> Decision:
    """The decision on `needs`, which are in order of priority."""
    fleet = fleet_of(specs)
    return checked(fleet, demand_of(fleet, needs), settings)


def orders(
    specs: list[Spec], *needs: tuple[str, Need], settings: EngineConfig | None = None
) -> list[str]:
    """The actions for `needs`, which are in order of priority."""
    return action_names(specs, decided(specs, *needs, settings=settings))
