"""A shard that purchases within a quota: what it was told, and what it holds."""

from __future__ import annotations

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.ports.ownership import OwnershipRecord, QuotaKey
from bigfleet.services.coordinator import quotas
from bigfleet.services.coordinator.domains import NewInstructionId
from bigfleet.services.coordinator.instructions import pending
from bigfleet.services.coordinator.registry import Registry
from bigfleet.services.coordinator.reports import Reports
from bigfleet.services.shard.coordination.instructions import Draft, take


class QuotaShard:
    """Its reports may be repeated late, and it may restart."""

    def __init__(self, name: str, provider: str, region: str) -> None:
        self.name, self.held = name, 0
        self._key = QuotaKey(provider, region)
        self._record, self._epoch, self._sequence = OwnershipRecord(), 1, 0
        self._reports, self._acks = Reports(0.0), list[wire.InstructAck]()
        self._last: wire.ShardReport | None = None

    @property
    def slice(self) -> int:
        """How many machines it may have."""
        return self._record.slices.get(self._key, 0)

    @property
    def uses(self) -> int:
        """What it may use or uses already."""
        return max(self.slice, self.held)

    def act(self, what: str, registry: Registry, instruction_id: NewInstructionId) -> None:
        """One step by name."""
        match what:
            case "take":
                self.take(registry)
            case "report":
                self.report(registry, instruction_id)
            case "late" if self._last is not None:
                self._arrives(self._last, registry, instruction_id)
            case "buy":
                self.held += self.held < self.slice
            case "sell":
                self.held -= self.held > 0
            case "restart":
                self._epoch += 1

    def take(self, registry: Registry) -> None:
        """Carry out all instructions that are due."""
        received = self._reports.of(self.name)
        accepted = received.accepted_ids if received else set()
        draft = Draft(self._record)
        for each in pending(registry, self.name, accepted, ()):
            self._sequence += 1
            each.coordinator_term, each.sequence_number = 1, self._sequence
            self._acks += take(draft, each)
        self._record = draft.to_record()

    def report(self, registry: Registry, instruction_id: NewInstructionId) -> None:
        """Report what it holds and has accepted."""
        provider, region = self._key
        use = wire.QuotaUse(provider=provider, region=region, machines=self.slice, held=self.held)
        self._last = wire.ShardReport(
            shard_id=self.name,
            shard_epoch=self._epoch,
            instruction_acks=self._acks,
            quotas=[use],
        )
        self._acks = []
        self._arrives(self._last, registry, instruction_id)

    def _arrives(
        self, report: wire.ShardReport, registry: Registry, instruction_id: NewInstructionId
    ) -> None:
        received = self._reports.record(report, 0.0, 0)
        received.accepted_ids.update(a.instruction_id for a in report.instruction_acks)
        registry.apply(quotas.confirmed(registry, report, received.accepted_ids, instruction_id))
