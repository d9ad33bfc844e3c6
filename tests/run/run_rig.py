"""A minimal folder of a finished run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from loaddriver.judge.facts import RunFacts
from loaddriver.judge.schema import Summary
from loaddriver.judge.summary import make_summary
from loaddriver.plan.files import save_plan
from loaddriver.plan.make import make_plan
from loaddriver.profile.loading import Profile, load_profile
from loaddriver.record.live_counts import NullListener
from loaddriver.record.recorder import Observations
from loaddriver.record.watching import NodeObservation, WatchTimestamps
from loaddriver.report.results import write_results
from loaddriver.run.paired_run import PLAN, save_nodes, save_profile
from loaddriver.sizing.demand import demand
from loaddriver.sizing.inventory import InventoryMachine, fleet_inventory

PROFILES = Path(__file__).parents[2] / "profiles"


def smoke(*overrides: str) -> Profile:
    """The smallest profile."""
    return load_profile("smoke", PROFILES, overrides)


def machines(profile: Profile) -> tuple[InventoryMachine, ...]:
    """Its fleet."""
    return fleet_inventory(profile, demand(make_plan(profile), profile.catalog))


def summary(verdict: str = "pass", exit_code: int = 0, **more: Any) -> Summary:
    """The summary of an empty run, with the given fields."""
    known: dict[str, Any] = {
        "id": "smoke-1",
        "profile": "smoke",
        "seed": 1,
        "substrate": "local",
        "started_micros": 0,
        "soak_started_micros": None,
        "ended_micros": 1_000_000,
        "planned_pods": 200,
        "planned_groups": {},
        "versions": {"etcd": "3.7.3"},
        "environment": {},
    }
    found = make_summary(RunFacts(**{**known, **more}), [], [], smoke().gates)
    return msgspec.structs.replace(found, verdict=verdict, exit_code=exit_code, invalid_reasons=[])


def seen(cluster: str, ready: Sequence[str], never_ready: Sequence[str] = ()) -> Observations:
    """A cluster in which machines became Nodes, some of which came to nothing."""
    timestamps = WatchTimestamps(NullListener())
    for name in (*ready, *never_ready):
        timestamps.nodes[f"uid-{name}"] = NodeObservation(
            name, {}, 1, ready_micros=2 if name in ready else None
        )
    return Observations(cluster, None, timestamps, 0, 2, 0, 10)


def finished_run(folder: Path, profile: Profile, of: Summary, nodes: Sequence[str]) -> Path:
    """A results folder in which `nodes` served cluster c1."""
    folder.mkdir()
    save_profile(profile, folder)
    save_plan(make_plan(profile), folder / PLAN)
    save_nodes([seen("c1", nodes)], machines(profile), folder)
    write_results(folder, of, [])
    return folder
