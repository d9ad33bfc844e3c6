"""`bigfleet shard`: its flags, and what they mean."""

from __future__ import annotations

import argparse
import asyncio
import math
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from bigfleet.commands.flags import (
    addresses,
    advertise_flag,
    advertised_of,
    identity_flag,
    identity_of,
    server_flags,
)
from bigfleet.model.domain import BY_RACK, BY_ZONE
from bigfleet.model.machine import CapacityType

Role = Callable[[asyncio.Event], Coroutine[Any, Any, None]]


def add(roles: Any) -> None:
    """Add the role to the parser's `roles`."""
    _flags(roles.add_parser("shard", help="decides which machines go where"))


def _shard(flags: argparse.Namespace) -> Role:
    from bigfleet.services.shard import role as shard
    from bigfleet.services.shard.config import ShardConfig
    from bigfleet.services.shard.records.journal import JournalLimits

    (listen_host, listen_port), (observe_host, observe_port) = flags.listen, flags.observe
    identity = identity_of(flags, "shard", flags.shard_id)
    settings = ShardConfig(
        identity=identity,
        shard_id=flags.shard_id,
        listen_host=listen_host,
        listen_port=listen_port,
        observe_host=observe_host,
        observe_port=observe_port,
        provider_address=flags.provider,
        state_directory=flags.state,
        cycle_seconds=flags.cycle,
        execute_concurrency=flags.execute_concurrency,
        journal=flags.journal,
        journal_limits=JournalLimits(flags.journal_megabytes * 2**20, flags.journal_backups),
        actuation_paused=flags.actuation_paused,
        batch_wait_seconds=flags.batch_wait,
        cluster_absence_seconds=flags.operator_absence_timeout,
        ceilings=flags.cluster_ceilings,
        coordinator_addresses=flags.coordinator,
        domain_keys=BY_ZONE if flags.domains == "zone" else BY_RACK,
        advertised=advertised_of(flags) if flags.coordinator else "",
        engine=_engine(flags),
    )
    return lambda stop: shard.run(settings, stop)


def _engine(flags: argparse.Namespace) -> Any:
    """How decisions are made."""
    from bigfleet.engine.snapshot import EngineConfig, VictimWeights

    return EngineConfig(
        reclaim_cap_fraction=flags.reclaim_cap_fraction,
        reclaim_hold_seconds=flags.reclaim_hold,
        reservation_seconds=flags.reservation,
        victim_weights=VictimWeights(*flags.victim_weights),
        idle_hold_seconds={
            CapacityType.ON_DEMAND: flags.on_demand_hold,
            CapacityType.SPOT: flags.spot_hold,
        },
    )


def _flags(role: argparse.ArgumentParser) -> None:
    server_flags(role)
    identity_flag(role)
    role.add_argument("--shard-id", required=True)
    role.add_argument("--provider", required=True, metavar="HOST:PORT")
    role.add_argument(
        "--cycle", type=float, default=1.0, metavar="SECONDS", help="longest time between decisions"
    )
    role.add_argument("--execute-concurrency", type=int, default=64, metavar="N")
    _journal_flags(role)
    role.add_argument(
        "--coordinator",
        type=addresses,
        default=(),
        metavar="HOST:PORT,...",
        help="the coordinator's replicas; without them all machines and clusters are this shard's",
    )
    role.add_argument(
        "--domains",
        choices=("rack", "zone"),
        default="rack",
        help="what shards own as a whole, the same for all shards of a fleet: racks, and zones "
        "where a machine has no rack; or zones, so that gangs of a whole zone can be served "
        "(default: rack)",
    )
    advertise_flag(role, "operators")
    role.add_argument(
        "--actuation-paused", action="store_true", help="decide and show, but order nothing"
    )
    role.add_argument(
        "--cluster-ceilings",
        type=Path,
        metavar="FILE",
        help="the highest priority, most machines and most dollars an hour of each cluster (YAML); "
        "read again when it changes",
    )
    _timeout_flags(role)
    _decision_flags(role)
    role.set_defaults(build=_shard)


def _journal_flags(role: argparse.ArgumentParser) -> None:
    role.add_argument("--journal", type=Path, help="where machine stories go (JSON lines)")
    role.add_argument(
        "--journal-megabytes",
        type=int,
        default=64,
        metavar="N",
        help="how long the journal gets before it is put aside as .1 (default: 64)",
    )
    role.add_argument(
        "--journal-backups",
        type=int,
        default=4,
        metavar="N",
        help="how many journals that were put aside are kept (default: 4)",
    )


def _timeout_flags(role: argparse.ArgumentParser) -> None:
    role.add_argument(
        "--batch-wait",
        type=float,
        default=1800.0,
        metavar="SECONDS",
        help="how long pods of Jobs on a machine to spare have to end (default: 1800)",
    )
    role.add_argument(
        "--operator-absence-timeout",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="how long an operator may be away until nothing more is acquired (default: 600)",
    )


def _decision_flags(role: argparse.ArgumentParser) -> None:
    role.add_argument(
        "--reclaim-cap-fraction",
        type=float,
        default=0.05,
        metavar="SHARE",
        help="of a cluster's machines, how many may be reclaimed in one cycle",
    )
    role.add_argument(
        "--reclaim-hold",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="how long a cluster must have had machines to spare before it gives them back",
    )
    role.add_argument(
        "--reservation",
        type=float,
        default=900.0,
        metavar="SECONDS",
        help="how long machines are kept for a need that does not have all of them yet",
    )
    role.add_argument(
        "--victim-weights",
        type=_weights,
        default=(1.0, 0.1, 0.1, 0.1),
        metavar="GAP,DRAIN,INTERRUPTION,RECLAMATION",
        help="what counts in the choice of a victim (default: 1,0.1,0.1,0.1)",
    )
    role.add_argument("--on-demand-hold", type=float, default=600.0, metavar="SECONDS")
    role.add_argument("--spot-hold", type=float, default=60.0, metavar="SECONDS")


def _weights(text: str) -> tuple[float, ...]:
    try:
        weights = tuple(float(part) for part in text.split(","))
    except ValueError:
        weights = ()
    if len(weights) != 4 or not all(0 <= weight < math.inf for weight in weights):
        raise argparse.ArgumentTypeError(f"{text!r} is not four weights >= 0, with commas between")
    return weights
