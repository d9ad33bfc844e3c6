"""Configuration of a provider."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from pathlib import Path
from statistics import NormalDist

from bigfleet.api.auth.identity import Identity
from bigfleet.model.errors import InvalidInput
from bigfleet.model.machine import MachineEvent

_P99_SIGMAS = NormalDist().inv_cdf(0.99)


@dataclass(frozen=True)
class Latency:
    """Duration of a transition: log-normal with this median and 99th percentile, in seconds.

    A median of 0 means none. InvalidInput for a negative median or a p99 below the median.
    """

    median_seconds: float = 0.0
    p99_seconds: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.median_seconds <= self.p99_seconds < math.inf:
            shown = f"median {self.median_seconds} s, p99 {self.p99_seconds} s"
            raise InvalidInput("latency", shown, "needs 0 <= median <= p99, both finite")

    def sample_seconds(self, seed: int, machine_id: str, operation: int) -> float:
        """The latency of a machine's n-th operation, the same for equal arguments."""
        if self.median_seconds == 0:
            return 0.0
        sigma = math.log(self.p99_seconds / self.median_seconds) / _P99_SIGMAS
        rng = random.Random(f"{seed}/{machine_id}/{operation}")
        return rng.lognormvariate(math.log(self.median_seconds), sigma)


@dataclass(frozen=True)
class Latencies:
    """One Latency per order."""

    create: Latency = Latency()
    configure: Latency = Latency()
    drain: Latency = Latency()
    delete: Latency = Latency()

    def of(self, order: MachineEvent) -> Latency:
        """The latency of CREATE, CONFIGURE, DRAIN or DELETE."""
        return {
            MachineEvent.CREATE: self.create,
            MachineEvent.CONFIGURE: self.configure,
            MachineEvent.DRAIN: self.drain,
            MachineEvent.DELETE: self.delete,
        }[order]


@dataclass(frozen=True)
class ProviderConfig:
    """Port 0 lets the system choose.

    `state_directory` keeps the machines between runs, for one provider at a time. `inventory_file`
    (JSON lines) is read only while that directory has no machines. `host_kubeconfigs` is a
    directory of `<cluster id>.kubeconfig` with which fake hosts watch their Nodes; None boots
    machines without a cluster. A machine fails when its Node is not Ready within
    `boot_timeout_seconds` of its boot. Spot machines are interrupted at their hourly probability,
    at `spot_market_hours_per_second` hours of market time per second (0: never). `provider_name`
    is the first part of every Node's providerID. A failed fixed machine is repaired after
    `repair_seconds`. Without an `identity` it serves plaintext.
    """

    listen_port: int
    observe_port: int
    state_directory: Path
    inventory_file: Path
    host_kubeconfigs: Path | None
    listen_host: str = "127.0.0.1"
    observe_host: str = "127.0.0.1"
    latencies: Latencies = field(default_factory=Latencies)
    boot_timeout_seconds: float = 120.0
    seed: int = 0
    spot_market_hours_per_second: float = 0.0
    provider_name: str = "kwok"
    repair_seconds: float = 60.0
    identity: Identity | None = None

    def __post_init__(self) -> None:
        """InvalidInput for values that cannot work."""
        if not self.boot_timeout_seconds > 0:
            raise InvalidInput("boot_timeout_seconds", self.boot_timeout_seconds, "is not > 0")
        if not self.repair_seconds >= 0:
            raise InvalidInput("repair_seconds", self.repair_seconds, "is not >= 0")
        hours = self.spot_market_hours_per_second
        if not 0 <= hours < math.inf:
            raise InvalidInput("spot_market_hours_per_second", hours, "is not a finite number >= 0")
