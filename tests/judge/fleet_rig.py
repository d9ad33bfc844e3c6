"""A small fleet and what pods ask of it, for tests of what a run held and disturbed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from loaddriver.judge.facts import FleetFacts
from loaddriver.plan.manifests import RACK_KEY, ZONE_KEY
from loaddriver.record.audit import AuditTimestamps, Removal
from loaddriver.record.journal import Event, Journal
from loaddriver.record.recorder import Observations
from loaddriver.sizing.fit import PodRequirements
from loaddriver.sizing.inventory import InventoryMachine
from tests.judge.judge_rig import at, unseen

ONE_CORE = PodRequirements((("cpu", 1000), ("pods", 1000)))


def machine(
    name: str,
    dollars: float = 1.0,
    state: Literal["IDLE", "SPECULATIVE"] = "SPECULATIVE",
    cores: int = 4,
    zone: str = "a",
) -> InventoryMachine:
    """A machine of so many cores."""
    return InventoryMachine(
        id=name,
        state=state,
        instance_type="m6.large",
        zone=zone,
        rack="r1",
        capacity_type="ON_DEMAND",
        price_per_hour=dollars,
        interruption_probability=0.0,
        resources={"cpu": str(cores), "memory": "8Gi", "pods": "110"},
        labels={ZONE_KEY: zone, RACK_KEY: "r1"},
    )


def fleet(*machines: InventoryMachine, **more: object) -> FleetFacts:
    """Machines for one-core pods of the workloads web, job and db in cluster c0."""
    needs: Mapping[tuple[str, str], PodRequirements] = {
        ("c0", name): ONE_CORE for name in ("web", "job", "db")
    }
    known = FleetFacts(
        machines={each.id: each for each in machines},
        daemon_sets=(),
        needs=needs,
        run_seconds={"batch": 30.0},
        shares_machines=True,
    )
    return replace(known, **more)  # type: ignore[arg-type]


def observed(
    nodes: Mapping[str, tuple[float, float | None]] | None = None,
    removals: tuple[Removal, ...] = (),
) -> Observations:
    """What cluster c0's recorder saw: when each node came and went, and who removed pods."""
    log = AuditTimestamps(removals=list(removals))
    for name, (came, went) in (nodes or {}).items():
        log.nodes_created[name].append(at(came))
        log.nodes_ready[name].append(at(came))
        log.racks[name, at(came)] = "r1"
        if went is not None:
            log.nodes_deleted[name].append(at(went))
    return replace(unseen(), audit=log)


def state(name: str, seconds: float, to: str, cluster: str = "c0") -> Event:
    """A machine's change of state in a shard's journal."""
    return Event(at=at(seconds) / 1e6, event="state", machine=name, state=to, cluster=cluster)


def life(name: str, bought: float, given: float) -> list[Event]:
    """A machine that is bought, joins after five seconds, and is given back."""
    return [
        state(name, bought, "CREATING"),
        state(name, bought + 5, "CONFIGURED"),
        state(name, given - 2, "DELETING"),
        state(name, given, "SPECULATIVE"),
    ]


def journal(*events: Event) -> Journal:
    """The stories that these events make."""
    stories: dict[str, list[Event]] = {}
    for event in sorted(events, key=lambda each: each.at):
        stories.setdefault(event.machine, []).append(event)
    return Journal(stories, 0)
