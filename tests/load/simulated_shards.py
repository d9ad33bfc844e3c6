"""Shards as the coordinator sees them, without machines: production's reports and instructions.

Each sees all domains of the fleet, as a shard that lists a whole provider does, and answers its
instructions at once. Their own CPU time is counted, so that the rest is the coordinator's.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.api.v1alpha1.capacity_pb2 import NodeSelectorRequirement, PenaltyBucket
from bigfleet.api.v1alpha1.provider_pb2 import Resources
from bigfleet.model.domain import Domain
from bigfleet.model.errors import Unavailable
from bigfleet.model.labels import RACK_LABEL
from bigfleet.ports.ownership import OwnershipRecord
from bigfleet.services.shard.config import ShardConfig
from bigfleet.services.shard.coordination import report
from bigfleet.services.shard.coordination.domain_observations import DomainObservations
from bigfleet.services.shard.coordination.instruction_handler import InstructionHandler
from bigfleet.services.shard.fleet.ownership import Ownership
from bigfleet.simulation.hosts.coordinators import Coordinators
from bigfleet.simulation.runtime.loop import START_UNIX_SECONDS

TYPES, MACHINES_PER_DOMAIN = 20, 40
REPORT_SECONDS, _CALL_SECONDS = ShardConfig.report_seconds, 0.001
Seen = Mapping[Domain, Counter[str]]


def racks(count: int) -> Seen:
    """So many racks of forty machines each, of twenty instance types in turn."""
    return {
        Domain(RACK_LABEL, f"zone-{n % 3}-row-{n // 40:05d}-rack-{n:06d}"): Counter(
            {f"m{n % TYPES}.4xlarge": MACHINES_PER_DOMAIN}
        )
        for n in range(count)
    }


class _Memory:
    """A store of ownership that is not kept."""

    def load(self) -> OwnershipRecord:
        return OwnershipRecord()

    def save(self, record: OwnershipRecord) -> None:
        """Nothing is restarted here."""


@dataclass
class Meter:
    """CPU seconds of all shards, and the sizes of their reports."""

    shard_cpu_seconds: float = 0.0
    report_bytes: list[int] = field(default_factory=list)

    @contextmanager
    def of_shard(self) -> Iterator[None]:
        """What runs inside is a shard's work."""
        began = time.process_time()
        yield
        self.shard_cpu_seconds += time.process_time() - began


class SimulatedShard:
    """It reports every two seconds while it runs. `short_of` is what its clusters lack."""

    def __init__(self, number: int, seen: Seen, coordinators: Coordinators, meter: Meter) -> None:
        self.id = f"shard-{number:03d}"
        self.short_of: Sequence[wire.Shortfall] = ()
        self._address = f"10.0.{number // 250}.{number % 250}:7780"
        self._seen, self._coordinators, self._meter = seen, coordinators, meter
        self.ownership = Ownership(_Memory())
        self._handler = InstructionHandler(self.ownership, lambda _: False)
        self._observations = DomainObservations(self.id)
        self._random, self._cycle = random.Random(number), 0

    async def run(self) -> None:
        """Report until cancelled, at once if there is something to acknowledge."""
        await asyncio.sleep(self._random.uniform(0, REPORT_SECONDS))
        while True:
            await self._once()
            if not self._handler.has_accepted:
                await asyncio.sleep(REPORT_SECONDS)

    async def _once(self) -> None:
        now_seconds = asyncio.get_running_loop().time()
        with self._meter.of_shard():
            self._handler.settle()
            composed = self._compose(now_seconds)
            answers = self._handler.due
            composed.instruction_acks.extend(answers)
            sent = composed.SerializeToString()
        self._meter.report_bytes.append(len(sent))
        await asyncio.sleep(_CALL_SECONDS)
        try:
            received = await self._coordinators.call_leader(
                lambda handlers, leader_term: handlers.report(
                    leader_term, wire.ShardReport.FromString(sent)
                )
            )
        except Unavailable:
            return
        encoded = received.SerializeToString()
        with self._meter.of_shard():
            ack = wire.ReportAck.FromString(encoded)
            self._handler.delivered(answers)
            self._observations.acknowledged(
                composed.unowned_domains, ack.coordinator_term, now_seconds
            )
            self._handler.take(ack.instructions)

    def _compose(self, now_seconds: float) -> wire.ShardReport:
        """As `Reporter.compose`, with counts that need no inventory."""
        self._cycle += 1
        record = self.ownership.record
        own = {domain: self._seen[domain] for domain in record.domains}
        return wire.ShardReport(
            shard_id=self.id,
            cycle=self._cycle,
            timestamp_unix_nanos=int((START_UNIX_SECONDS + now_seconds) * 1e9),
            shard_epoch=1,
            shard_address=self._address,
            summary=_summary(own),
            shortfalls=self.short_of,
            providers=[wire.ProviderEntry(name="cloud", address="10.1.0.1:7770", region="eu")],
            unowned_domains=self._observations.due(self._seen, record.domains, now_seconds),
            owned_domains=len(record.domains),
            seen_term=record.newest.term,
            seen_sequence=record.newest.sequence,
            domain_keys=[RACK_LABEL],
            movable_domains=report.movable_domains(own, {}),
        )


def _summary(own: Seen) -> wire.ShardSummary:
    counts = sum(own.values(), Counter[str]())
    shown = dict(counts.most_common(report.MAX_TYPES))
    rest = counts.total() - sum(shown.values())
    zones = Counter(domain.value[:6] for domain in own for _ in range(MACHINES_PER_DOMAIN))
    return wire.ShardSummary(
        total_machines=counts.total(),
        per_instance_type_counts={**shown, report.OTHERS: rest} if rest else shown,
        per_zone_counts=zones,
    )


def old_shortfalls(count: int, others: Sequence[Domain]) -> Sequence[wire.Shortfall]:
    """As many as may be, that nothing can be done about: each is old, and names ten domains with
    machines that their shards keep free, and three whose machines serve the same priority by now.
    """
    return [
        wire.Shortfall(
            requirements=[
                NodeSelectorRequirement(
                    key="node.kubernetes.io/instance-type",
                    operator=NodeSelectorRequirement.IN,
                    values=[f"m{number % TYPES}.4xlarge"],
                )
            ],
            deficit=Resources(resources={"cpu": "12", "memory": "48Gi"}),
            priority=1000,
            age_cycles=100 + number,
            interruption_penalty_bucket=PenaltyBucket.PENALTY_BUCKET_1,
            cluster_id=f"cluster-{number:05d}",
            profile_fingerprint=f"{number:016x}",
            needs=1,
            reason="all machines that match serve higher priorities",
            count=3,
            helpful_domains=[
                *(_kept(each) for each in others[13 * number :][:10]),
                *(_drained(each) for each in others[13 * number + 10 :][:3]),
            ],
        )
        for number in range(count)
    ]


def _kept(domain: Domain) -> wire.HelpfulDomain:
    return wire.HelpfulDomain(
        topology_key=domain.key,
        topology_value=domain.value,
        free_machines=1,
        free_pods=3,
    )


def _drained(domain: Domain) -> wire.HelpfulDomain:
    return wire.HelpfulDomain(
        topology_key=domain.key,
        topology_value=domain.value,
        drained_machine_ids=[f"{domain.value}-{machine}" for machine in range(3)],
        drained_pods=3,
        drained_priority=1000,
    )
