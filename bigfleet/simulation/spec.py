"""The specification of a simulated world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bigfleet.engine.snapshot import EngineConfig
from bigfleet.model.machine import Machine
from bigfleet.services.provider.config import Latencies
from bigfleet.simulation.cluster.workload import Workload
from bigfleet.simulation.runtime.faults import Delays
from bigfleet.simulation.runtime.permanent_faults import PermanentFaults


@dataclass(frozen=True)
class WorldSpec:
    """A world. `spot_hours_per_second` is the pace of spot interruptions, 0 for none.
    `scheduler_looks_ahead` when it starts a gang. `daemons` run on every Node. `request_additional`
    False disables requests for additional machines, to show why they are needed. `broken` are
    permanent faults. With `coordinators`, the replicas of one, the `shards` own what it assigns;
    those in `late_shards` start later.
    """

    machines: Sequence[Machine]
    clusters: Sequence[str] = ("east",)
    seed: int = 0
    engine: EngineConfig = field(default_factory=EngineConfig)
    cycle_seconds: float = 1.0
    latencies: Latencies = field(default_factory=Latencies)
    delays: Delays = field(default_factory=Delays)
    spot_hours_per_second: float = 0.0
    scheduler_looks_ahead: bool = True
    daemons: Sequence[Workload] = ()
    request_additional: bool = True
    broken: PermanentFaults = field(default_factory=PermanentFaults)
    shards: Sequence[str] = ("simulated",)
    late_shards: Sequence[str] = ()
    coordinators: Sequence[str] = ()
