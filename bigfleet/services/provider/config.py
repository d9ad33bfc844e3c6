"""Configuration of a provider."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from pathlib import Path
from statistics import NormalDist
from typing import Annotated

from bigfleet.api.auth.identity import Identity
from bigfleet.flags import LISTEN, OBSERVE, STATE, Flag, parse_numbers
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


def _latency_flag(order: str) -> Flag:
    metavar = "MEDIAN,P99"
    return Flag(
        f"--{order}-latency",
        f"seconds to {order} a machine",
        metavar,
        lambda text: Latency(*parse_numbers(text, metavar)),
        lambda latency: f"{latency.median_seconds:g},{latency.p99_seconds:g}",
    )


@dataclass(frozen=True)
class Latencies:
    """One Latency per order."""

    create: Annotated[Latency, _latency_flag("create")] = Latency()
    configure: Annotated[Latency, _latency_flag("configure")] = Latency()
    drain: Annotated[Latency, _latency_flag("drain")] = Latency()
    delete: Annotated[Latency, _latency_flag("delete")] = Latency()

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
    `repair_seconds`. `market_file` (JSON lines, may come later) changes prices and interrupts kinds
    of spot machines at Unix times. Without an `identity` it serves plaintext.
    """

    listen_port: Annotated[int, LISTEN]
    observe_port: Annotated[int, OBSERVE]
    state_directory: Annotated[Path, STATE]
    inventory_file: Annotated[Path, Flag("--inventory", "initial machines (JSON lines)", "FILE")]
    host_kubeconfigs: Annotated[
        Path | None,
        Flag(
            "--host-kubeconfigs",
            "directory of CLUSTER.kubeconfig, for fake hosts to watch that cluster's Nodes; "
            "without it machines boot without a cluster",
            "DIR",
        ),
    ]
    listen_host: str = "127.0.0.1"
    observe_host: str = "127.0.0.1"
    latencies: Latencies = field(default_factory=Latencies)
    boot_timeout_seconds: Annotated[
        float, Flag("--boot-timeout", "until a Node that is not Ready has failed", "SECONDS")
    ] = 120.0
    seed: Annotated[int, Flag("--seed", "random seed of the latencies", "N")] = 0
    spot_market_hours_per_second: Annotated[
        float,
        Flag(
            "--spot-market-hours-per-second",
            "hours of spot interruptions simulated per second",
            "HOURS",
        ),
    ] = 0.0
    provider_name: Annotated[
        str,
        Flag("--name", "its name in quotas, identities and every Node's providerID", "NAME"),
    ] = "kwok"
    repair_seconds: Annotated[
        float, Flag("--repair-time", "until a failed fixed machine recovers; inf: never", "SECONDS")
    ] = 60.0
    market_file: Annotated[
        Path | None,
        Flag(
            "--market",
            "prices that move and interruptions of kinds of spot machines (JSON lines); read again "
            "when it changes",
            "FILE",
        ),
    ] = None
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
