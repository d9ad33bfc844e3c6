"""An in-memory coordinator that records instructions and acknowledgements."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from bigfleet.api import transport
from bigfleet.api.auth.identity import Identity
from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.api.v1alpha1.coordinator_pb2_grpc import (
    CoordinatorServicer,
    add_CoordinatorServicer_to_server,
)
from bigfleet.api.v1alpha1.provider_pb2 import ClaimEpochRequest, ClaimEpochResponse
from bigfleet.model.domain import Domain
from bigfleet.model.errors import Fenced, Unavailable, UnknownObject
from bigfleet.model.labels import RACK_LABEL

Instruction = wire.CoordinatorInstruction
Outcome = wire.InstructAck.Outcome


def rack(name: str) -> Domain:
    """A rack as a domain."""
    return Domain(RACK_LABEL, name)


class FakeCoordinator:
    """Gives each unowned domain to the shard that tells of it first, unless `gives_domains` is
    off, and each cluster to the shard that asks first. An instruction is repeated until answered.
    """

    def __init__(self, *, gives_domains: bool = True) -> None:
        self.term = 1
        self.reachable = True
        self.deposed_shards: set[str] = set()
        self.gives_domains = gives_domains
        self.owners: dict[Domain, str] = {}
        self.clusters: dict[str, str] = {}
        self.addresses: dict[str, str] = {}
        # The last of each shard; an empty one of those that have sent none yet.
        self.reports: defaultdict[str, wire.ShardReport] = defaultdict(wire.ShardReport)
        # All that a shard ever told of: it does so once, and then every half minute.
        self.seen: dict[str, set[Domain]] = {}
        self.answers: dict[str, wire.InstructAck] = {}
        # What shards said of clusters that they take out, in order.
        self.removals: list[wire.ClusterRemoval] = []
        self.pending: dict[str, dict[str, Instruction]] = {}
        self._sequence = itertools.count(1)

    async def report(self, report: wire.ShardReport) -> wire.ReportAck:
        """The instructions of a shard."""
        self._check(report.shard_id)
        self.reports[report.shard_id] = report
        self.addresses[report.shard_id] = report.shard_address
        domains = self.seen.setdefault(report.shard_id, set())
        domains |= {Domain(d.topology_key, d.topology_value) for d in report.unowned_domains}
        waiting = self.pending.setdefault(report.shard_id, {})
        for removal in report.removals:
            self.removals.append(removal)
            if not removal.machines_left:
                self.clusters.pop(removal.cluster_id, None)
        for answer in report.instruction_acks:
            self.answers[answer.instruction_id] = answer
            waiting.pop(answer.instruction_id, None)
        if self.gives_domains:
            for seen in report.unowned_domains:
                domain = Domain(seen.topology_key, seen.topology_value)
                if domain not in self.owners:
                    self.give(domain, report.shard_id)
        return wire.ReportAck(
            coordinator_term=self.term, acknowledged=True, instructions=waiting.values()
        )

    async def claim_epoch(self, shard_id: str) -> int:
        """One more than the shard has reported; 0 if it never has."""
        self._check(shard_id)
        known = self.reports.get(shard_id)
        return known.shard_epoch + 1 if known else 0

    async def resolve(
        self, cluster: str, shard_id: str, *, assigned_only: bool = False
    ) -> wire.ResolveClusterResponse:
        """The shard that serves a cluster."""
        self._check(shard_id)
        if assigned_only and cluster not in self.clusters:
            raise UnknownObject(f"cluster {cluster} is not served by any shard yet")
        owner = self.clusters.setdefault(cluster, shard_id)
        return wire.ResolveClusterResponse(
            shard_id=owner,
            shard_address=self.addresses.get(owner, ""),
            coordinator_term=self.term,
        )

    async def close(self) -> None:
        """One shard lets go; the others go on."""

    def give(self, domain: Domain, shard_id: str) -> str:
        """Assign a domain; the instruction's id."""
        self.owners[domain] = shard_id
        return self.instruct(
            shard_id,
            assign_domain=wire.AssignDomain(topology_key=domain.key, topology_value=domain.value),
        )

    def take(self, domain: Domain) -> str:
        """Take a domain from its owner; the instruction's id."""
        return self.instruct(
            self.owners[domain],
            unassign_domain=wire.UnassignDomain(
                topology_key=domain.key, topology_value=domain.value
            ),
        )

    def limit(self, shard_id: str, region: str, machines: int, provider: str = "memory") -> str:
        """Give a quota slice; the instruction's id."""
        told = wire.QuotaSlice(provider=provider, region=region, machines=machines)
        return self.instruct(shard_id, quota_slice=told)

    def instruct(
        self, shard_id: str, term: int = 0, sequence: int = 0, number: str = "", **what: Any
    ) -> str:
        """Any instruction at all; the newest unless `term` and `sequence` say otherwise."""
        made = Instruction(
            coordinator_term=term or self.term,
            sequence_number=sequence or next(self._sequence),
            **what,
        )
        made.instruction_id = number or f"{made.coordinator_term}-{made.sequence_number}"
        self.pending.setdefault(shard_id, {})[made.instruction_id] = made
        return made.instruction_id

    def accepted(self, number: str) -> bool:
        """Whether an instruction was executed."""
        answer = self.answers.get(number)
        return answer is not None and answer.outcome == wire.InstructAck.ACCEPTED

    def _check(self, shard_id: str) -> None:
        if not self.reachable:
            raise Unavailable("no coordinator leads: election")
        if shard_id in self.deposed_shards:
            raise Fenced(f"shard {shard_id} was replaced")


class FakeCoordinatorServicer(CoordinatorServicer):
    """A FakeCoordinator over gRPC. While `leader` is set, it is named and nobody served; while
    `answering` is not, callers wait.
    """

    def __init__(self, decides: FakeCoordinator, leader: str | None = None) -> None:
        self.decides, self.leader, self.calls = decides, leader, 0
        self.answering = asyncio.Event()
        self.answering.set()

    async def ReportShard(
        self, request: wire.ShardReport, context: grpc.aio.ServicerContext[Any, Any]
    ) -> wire.ReportAck:
        """As the fake says."""
        await self._lead(context)
        try:
            return await self.decides.report(request)
        except Fenced as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))

    async def ClaimEpoch(
        self, request: ClaimEpochRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> ClaimEpochResponse:
        """As the fake says."""
        await self._lead(context)
        epoch = await self.decides.claim_epoch(request.shard_id)
        return ClaimEpochResponse(shard_epoch=epoch)

    async def ResolveCluster(
        self, request: wire.ResolveClusterRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> wire.ResolveClusterResponse:
        """As the fake says."""
        await self._lead(context)
        return await self.decides.resolve(
            request.cluster_id, request.asking_shard_id, assigned_only=request.assigned_only
        )

    async def _lead(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        self.calls += 1
        await self.answering.wait()
        if self.leader is not None:
            trailer = (("bigfleet-leader", self.leader),)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not the leader", trailer)
        if not self.decides.reachable:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "election")


def servicer(decides: FakeCoordinator) -> FakeCoordinatorServicer:
    """A leader. Only the methods that shards call are implemented."""
    return FakeCoordinatorServicer(decides)  # type: ignore[abstract]


@asynccontextmanager
async def replica(
    serves: FakeCoordinatorServicer, identity: Identity | None = None
) -> AsyncIterator[str]:
    """Serve; returns the address."""
    server = transport.server(identity)
    add_CoordinatorServicer_to_server(serves, server)
    port = transport.listen(server, "127.0.0.1:0", identity)
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)
