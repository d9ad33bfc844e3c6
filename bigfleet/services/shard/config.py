"""Configuration of a shard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bigfleet.api.auth.identity import Identity
from bigfleet.engine.snapshot import EngineConfig
from bigfleet.model.domain import BY_RACK
from bigfleet.model.errors import InvalidInput
from bigfleet.services.shard.records.journal import JournalLimits


@dataclass(frozen=True)
class ShardConfig:
    """Port 0 lets the system choose.

    `provider_address` is host:port. `state_directory` must not be shared with another shard.
    `cycle_seconds` is the longest time between the starts of two cycles. `journal` is the file for
    the machines' stories as JSON lines, rotated by `journal_limits`. `engine` configures the
    decisions. A surplus machine that runs pods of Jobs is kept until these have had
    `batch_wait_seconds` to end. Nothing is acquired for a cluster whose operator has been
    disconnected for `cluster_absence_seconds`. `ceilings` is the file with limits per cluster;
    None for no limits. While `actuation_paused`, decisions are made and shown, but no order is
    issued.

    `coordinator_addresses` are host:port of the coordinator's replicas. Without any the shard owns
    all machines and serves all clusters; with them it owns domains by the first of `domain_keys`
    that a machine has, which all shards of a fleet must share. It reports every `report_seconds`.
    `advertised` is its address in redirects, by default the listen address. Without an `identity`
    it serves and dials plaintext.
    """

    shard_id: str
    listen_port: int
    observe_port: int
    provider_address: str
    state_directory: Path
    listen_host: str = "127.0.0.1"
    observe_host: str = "127.0.0.1"
    cycle_seconds: float = 1.0
    execute_concurrency: int = 64
    journal: Path | None = None
    journal_limits: JournalLimits = field(default_factory=JournalLimits)
    actuation_paused: bool = False
    engine: EngineConfig = field(default_factory=EngineConfig)
    batch_wait_seconds: float = 1800.0
    cluster_absence_seconds: float = 600.0
    ceilings: Path | None = None
    coordinator_addresses: Sequence[str] = ()
    domain_keys: Sequence[str] = BY_RACK
    report_seconds: float = 2.0
    advertised: str = ""
    identity: Identity | None = None

    def __post_init__(self) -> None:
        """InvalidInput for values that cannot work."""
        if not self.shard_id:
            raise InvalidInput("shard_id", self.shard_id, "is empty; every shard needs a name")
        if not self.cycle_seconds > 0:
            raise InvalidInput("cycle_seconds", self.cycle_seconds, "is not > 0")
        if not self.report_seconds > 0:
            raise InvalidInput("report_seconds", self.report_seconds, "is not > 0")
        if self.journal_limits.max_bytes < 1 or self.journal_limits.kept < 0:
            raise InvalidInput(
                "journal_limits", self.journal_limits, "are not >= 1 byte, >= 0 files"
            )
        if not self.batch_wait_seconds >= 0:
            raise InvalidInput("batch_wait_seconds", self.batch_wait_seconds, "is not a time >= 0")
        if not self.cluster_absence_seconds >= 0:
            hint = "is not a time >= 0"
            raise InvalidInput("cluster_absence_seconds", self.cluster_absence_seconds, hint)
        if self.execute_concurrency < 1:
            raise InvalidInput("execute_concurrency", self.execute_concurrency, "is not >= 1")
