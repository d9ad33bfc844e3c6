"""A small course over three clusters, and records of it that a test makes up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from loaddriver.fedhpa.load_schedule import LoadSchedule, make_schedule
from loaddriver.fedhpa.record import FederationRecord, Sample
from loaddriver.profile.federation import (
    FederationPhase,
    FederationSettings,
    OnPremise,
    RebalanceSettings,
    TrafficStep,
)
from loaddriver.profile.loading import load_catalog
from loaddriver.record.hpas import HpaWrite, Share

PROFILES = Path(__file__).parents[2] / "profiles"
CLUSTERS = ("c1", "c2", "c3")
BEGAN = 1_790_000_000.0
QUIET = {"c1": 0.425, "c2": 0.425, "c3": 0.425}


def federation(**phases: FederationPhase) -> FederationSettings:
    """A pod asks for half a core and shall use half of that; c1 has eight places."""
    first = FederationPhase(seconds=100, load=(TrafficStep(at=0, cores=QUIET),))
    return FederationSettings(
        archetype="web",
        min_replicas=6,
        max_replicas=36,
        target_percent=50,
        scale_down_stabilization_seconds=15,
        on_premise=OnPremise(cluster="c1", machines=3, spillover_at_percent=60),
        rebalance=RebalanceSettings(
            stabilization_seconds=5,
            cooldown_seconds=5,
            scheduling_timeout_seconds=10,
            retry_seconds=60,
        ),
        phases={"first": first, **phases},
    )


def schedule(seed: int = 1, jitter: float = 0.0, **phases: FederationPhase) -> LoadSchedule:
    archetype = load_catalog(PROFILES, "fedhpa-3").archetype("web")
    wanted = federation(**phases)
    jittered = type(wanted)(
        **{name: getattr(wanted, name) for name in wanted.__struct_fields__}
        | {"jitter_seconds": jitter}
    )
    return make_schedule(jittered, archetype, CLUSTERS, 4, seed)


def busier(at: float = 0.0, **cores: float) -> FederationPhase:
    """A hundred seconds in which these clusters get other load from the share `at` on."""
    return FederationPhase(seconds=100, load=(TrafficStep(at=at, cores=cores),))


def record(made: LoadSchedule, ready: Callable[[float], Mapping[str, int]]) -> FederationRecord:
    """Of a course that was played to its end, with as many working pods as `ready` says."""
    length = int(made.phase_windows[-1].end)
    samples = [
        Sample(
            at=BEGAN + second,
            offered_load=dict(made.cores_at(second)),
            routed_load=dict(made.cores_at(second)),
            ready=dict(ready(second)),
        )
        for second in range(length + 1)
    ]
    return FederationRecord(
        schedule=made,
        began_at=BEGAN,
        ended_at=BEGAN + length,
        samples=samples,
        events=[],
        logs={},
        host_log=Path(),
    )


def share_write(second: float, cluster: str, least: int, most: int) -> HpaWrite:
    """The federation gives a cluster a share, so long after the course's begin."""
    at = round((BEGAN + second) * 1e6)
    return HpaWrite(at, cluster, by_federation=True, share=Share(least, most), current=2, desired=2)
