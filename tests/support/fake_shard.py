"""A shard as the coordinator sees it: reports, carries out instructions, acknowledges them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from bigfleet.adapters.coordinator.client import LeaderClient
from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.api.v1alpha1.capacity_pb2 import PenaltyBucket
from bigfleet.api.v1alpha1.provider_pb2 import Resources

Domain = tuple[str, str]


class FakeShard:
    """One shard. `observed_domains` are domains that it reports as unowned, with their machines."""

    def __init__(self, shard_id: str, epoch: int = 1, port: int = 7780) -> None:
        self.shard_id, self.epoch = shard_id, epoch
        self.address = f"127.0.0.1:{port}"
        self.observed_domains: dict[Domain, int] = {}
        self.owns: set[Domain] = set()
        self.slices: dict[tuple[str, str], int] = {}
        self.seen = (0, 0)
        self.done: dict[str, wire.InstructAck] = {}
        self.rejects = False
        self.shortfalls: Sequence[wire.Shortfall] = ()
        self.domain_keys: Sequence[str] = ()
        self._acks: list[wire.InstructAck] = []

    def report(self) -> wire.ShardReport:
        """Its current report."""
        unowned = [
            (name, count) for name, count in self.observed_domains.items() if name not in self.owns
        ]
        summary = wire.ShardSummary(
            total_machines=sum(self.observed_domains.get(name, 0) for name in self.owns),
            free_machines=7,
            per_instance_type_counts={"m5.4xlarge": 40, "c5.9xlarge": 12, "p4d.24xlarge": 3},
            per_zone_counts={"zone-a": 25, "zone-b": 30},
        )
        return wire.ShardReport(
            shard_id=self.shard_id,
            cycle=12,
            timestamp_unix_nanos=time.time_ns(),
            shard_epoch=self.epoch,
            shard_address=self.address,
            summary=summary,
            shortfalls=self.shortfalls,
            instruction_acks=self._acks,
            providers=[wire.ProviderEntry(name="kwok", address="127.0.0.1:7770", region="r")],
            unowned_domains=[
                wire.DiscoveredDomain(topology_key=key, topology_value=value, machines=count)
                for (key, value), count in unowned[:1000]
            ],
            owned_domains=len(self.owns),
            seen_term=self.seen[0],
            seen_sequence=self.seen[1],
            domain_keys=self.domain_keys,
        )

    def apply(self, ack: wire.ReportAck) -> None:
        """Execute newer instructions; the next report has the results."""
        self._acks = [self._outcome(instruction) for instruction in ack.instructions]

    def _outcome(self, instruction: wire.CoordinatorInstruction) -> wire.InstructAck:
        if instruction.instruction_id in self.done:
            return self.done[instruction.instruction_id]
        number = (instruction.coordinator_term, instruction.sequence_number)
        answer = wire.InstructAck(instruction_id=instruction.instruction_id)
        if number <= self.seen:
            answer.outcome = wire.InstructAck.REJECTED_STALE
            return answer
        self.seen = number
        if self.rejects:
            answer.outcome, answer.reason = wire.InstructAck.FAILED, "an order is under way"
            return answer
        self._carry_out(instruction)
        answer.outcome = wire.InstructAck.ACCEPTED
        self.done[instruction.instruction_id] = answer
        return answer

    def _carry_out(self, instruction: wire.CoordinatorInstruction) -> None:
        match instruction.WhichOneof("instruction"):
            case "assign_domain":
                given = instruction.assign_domain
                self.owns.add((given.topology_key, given.topology_value))
            case "unassign_domain":
                taken = instruction.unassign_domain
                self.owns.discard((taken.topology_key, taken.topology_value))
            case "quota_slice":
                part = instruction.quota_slice
                self.slices[part.provider, part.region] = part.machines

    async def report_once(
        self, client: LeaderClient, timeout_seconds: float = 60.0
    ) -> wire.ReportAck:
        """Send one report and execute the instructions in the response."""
        ack: wire.ReportAck = await client.call("ReportShard", self.report(), timeout_seconds)
        self.apply(ack)
        return ack

    async def keep_reporting(self, client: LeaderClient, every_seconds: float) -> None:
        """Report until cancelled."""
        while True:
            await self.report_once(client, timeout_seconds=60.0)
            await asyncio.sleep(every_seconds)


def many_shortfalls(count: int) -> list[wire.Shortfall]:
    """Shortfalls as a shard reports them."""
    return [
        wire.Shortfall(
            deficit=Resources(resources={"cpu": "12", "memory": "48Gi"}),
            priority=1000 + n,
            age_cycles=n,
            interruption_penalty_bucket=PenaltyBucket.PENALTY_BUCKET_1,
            cluster_id=f"cluster-{n % 7}",
            profile_fingerprint=f"{n:016x}",
            needs=1 + n % 3,
            reason="all machines that match serve higher priorities",
        )
        for n in range(count)
    ]
