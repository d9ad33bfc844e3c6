"""What a simulated world is made of."""

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
    """What a world is made of. `spot_hours_per_second` is the spot market's pace, 0 for no losses.
    `scheduler_looks_ahead` when it begins a gang. `daemons` run on every Node. `request_additional`
    False is a wrong way to report demand, there to show why. What is `broken` never works. Where
    there are `coordinators`, the replicas of one, the `shards` are told by it what to own; those in
    `late_shards` come later.
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
