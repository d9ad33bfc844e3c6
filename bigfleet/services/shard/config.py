"""Configuration of a shard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from bigfleet.api.auth.identity import Identity
from bigfleet.engine.snapshot import EngineConfig
from bigfleet.flags import (
    ADVERTISE,
    LISTEN,
    OBSERVE,
    STATE,
    Flag,
    check_advertised,
    parse_addresses,
)
from bigfleet.model.domain import BY_RACK, BY_ZONE
from bigfleet.model.errors import InvalidInput
from bigfleet.services.shard.records.journal import JournalLimits


@dataclass(frozen=True)
class ShardConfig:
    """Port 0 lets the system choose.

    `provider_addresses` are host:port, one for each provider. `state_directory` must not be shared
    with another shard. `cycle_seconds` is the longest time between the starts of two cycles.
    `journal` is the file for the machines' stories as JSON lines, rotated by `journal_limits`.
    `engine` configures the decisions. A surplus machine that runs pods of Jobs is kept until these
    have had `batch_wait_seconds` to end. Nothing is acquired for a cluster whose operator has been
    disconnected for `cluster_absence_seconds`. `ceilings` is the file with limits per cluster;
    None for no limits. While `actuation_paused`, decisions are made and shown, but no order is
    issued.

    `coordinator_addresses` are host:port of the coordinator's replicas. Without any the shard owns
    all machines and serves all clusters; with them it owns domains by the first of `domain_keys`
    that a machine has, which all shards of a fleet must share. It reports every `report_seconds`.
    `advertised` is its address in redirects, by default the listen address. Without an `identity`
    it serves and dials plaintext.
    """

    shard_id: Annotated[str, Flag("--shard-id", "unique name of this shard", "ID")]
    listen_port: Annotated[int, LISTEN]
    observe_port: Annotated[int, OBSERVE]
    provider_addresses: Annotated[
        Sequence[str],
        Flag(
            "--provider",
            "a capacity provider; repeat it for each further one",
            "HOST:PORT",
            repeated=True,
        ),
    ]
    state_directory: Annotated[Path, STATE]
    listen_host: str = "127.0.0.1"
    observe_host: str = "127.0.0.1"
    cycle_seconds: Annotated[
        float, Flag("--cycle", "longest time between decision cycles", "SECONDS")
    ] = 1.0
    execute_concurrency: Annotated[
        int, Flag("--execute-concurrency", "provider operations in flight at most", "N")
    ] = 64
    journal: Annotated[
        Path | None, Flag("--journal", "write machine stories here (JSON lines)", "FILE")
    ] = None
    journal_limits: JournalLimits = field(default_factory=JournalLimits)
    actuation_paused: Annotated[
        bool, Flag("--actuation-paused", "compute and show decisions, execute none")
    ] = False
    engine: EngineConfig = field(default_factory=EngineConfig)
    batch_wait_seconds: Annotated[
        float,
        Flag("--batch-wait", "how long Job pods on a surplus machine have to finish", "SECONDS"),
    ] = 1800.0
    cluster_absence_seconds: Annotated[
        float,
        Flag(
            "--operator-absence-timeout",
            "how long a cluster's operator may be disconnected until nothing more is acquired "
            "for the cluster",
            "SECONDS",
        ),
    ] = 600.0
    ceilings: Annotated[
        Path | None,
        Flag(
            "--cluster-ceilings",
            "highest priority, most machines and most dollars an hour of each cluster (YAML); "
            "reloaded when it changes",
            "FILE",
        ),
    ] = None
    coordinator_addresses: Annotated[
        Sequence[str],
        Flag(
            "--coordinator",
            "the coordinator's replicas; without them this shard owns all machines and clusters",
            "HOST:PORT,...",
            parse_addresses,
        ),
    ] = ()
    domain_keys: Annotated[
        Sequence[str],
        Flag(
            "--domains",
            "unit of machine ownership, the same for all shards of a fleet: racks, or the zone of "
            "a machine without a rack; or zones, so that gangs of a whole zone can be served",
            choices={"rack": BY_RACK, "zone": BY_ZONE},
        ),
    ] = BY_RACK
    report_seconds: float = 2.0
    advertised: Annotated[str, ADVERTISE] = ""
    identity: Identity | None = None

    def __post_init__(self) -> None:
        """InvalidInput for values that cannot work."""
        if not self.shard_id:
            raise InvalidInput("shard_id", self.shard_id, "is empty; every shard needs a name")
        if self.coordinator_addresses:
            check_advertised(self.listen_host, self.listen_port, self.advertised)
        self._check_providers()
        self._check_times()
        if self.journal_limits.max_bytes < 1 or self.journal_limits.kept < 0:
            raise InvalidInput(
                "journal_limits", self.journal_limits, "are not >= 1 byte, >= 0 files"
            )
        if self.execute_concurrency < 1:
            raise InvalidInput("execute_concurrency", self.execute_concurrency, "is not >= 1")

    def _check_providers(self) -> None:
        if not self.provider_addresses:
            raise InvalidInput("--provider", "", "is missing; a shard needs at least one")
        for address in self.provider_addresses:
            if self.provider_addresses.count(address) > 1:
                hint = "is given twice; its machines would be listed twice"
                raise InvalidInput("--provider", address, hint)

    def _check_times(self) -> None:
        for name in ("cycle_seconds", "report_seconds"):
            if not getattr(self, name) > 0:
                raise InvalidInput(name, getattr(self, name), "is not > 0")
        for name in ("batch_wait_seconds", "cluster_absence_seconds"):
            if not getattr(self, name) >= 0:
                raise InvalidInput(name, getattr(self, name), "is not a time >= 0")
