"""A leader's term: its lease and its serialized writes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from bigfleet.model.errors import BigFleetError, Unavailable
from bigfleet.observe import metrics
from bigfleet.ports.clock import Clock
from bigfleet.ports.coordination import CoordinationStore, LeadershipLost, OutcomeUnknown
from bigfleet.services.coordinator.domain_moves import MoveMemory
from bigfleet.services.coordinator.registry import Registry
from bigfleet.services.coordinator.reports import Reports
from bigfleet.services.coordinator.rows import RowChanges, encode

_LOG = logging.getLogger(__name__)
# A leader whose own member has not confirmed it for this long must not answer.
LEASE_SECONDS = 0.4


class NotLeader(Unavailable):
    """This replica does not lead, or cannot be sure that it does; call the leader."""


class SequenceNumbers:
    """Sequence numbers of one process; they only grow, across all terms."""

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        """A number greater than all before."""
        self._last += 1
        return self._last

    def advance_past(self, used: int) -> None:
        """Continue after a number that a shard has seen."""
        self._last = max(self._last, used)


class LeaderTerm:
    """Leadership in `term`, from a claim in the store until `end`.

    `registry` holds the committed rows, `reports` the shards' reports to this leader,
    `domain_moves` which domains it has moved because of them. Ages and timeouts are measured by the
    monotonic seconds of `clock`.
    """

    def __init__(
        self,
        store: CoordinationStore,
        registry: Registry,
        term: int,
        claim_revision: int,
        sequence_numbers: SequenceNumbers,
        clock: Clock,
    ) -> None:
        self.registry, self.term, self.sequence_numbers, self.clock = (
            registry,
            term,
            sequence_numbers,
            clock,
        )
        self.reports = Reports(clock.monotonic_seconds())
        self.domain_moves = MoveMemory()
        self._store, self.claim_revision = store, claim_revision
        self._writing = asyncio.Lock()
        self._ended = asyncio.Event()
        self._renewed_seconds = self.clock.monotonic_seconds()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._ended.is_set()

    def renew_lease(self) -> None:
        """The member has just confirmed that it leads in this term."""
        self._renewed_seconds = self.clock.monotonic_seconds()

    @property
    def lease_valid(self) -> bool:
        """Whether it may still answer. Time in which the process was suspended counts."""
        return self.clock.monotonic_seconds() - self._renewed_seconds <= LEASE_SECONDS

    def end(self, why: str) -> None:
        """End the term; pending writes are abandoned."""
        if not self.ended:
            self._ended.set()
            _LOG.info("no longer leading: %s", why, extra={"term": self.term})

    def require_leadership(self) -> None:
        """NotLeader unless the term has not ended and its lease is valid."""
        if self.ended or not self.lease_valid:
            raise NotLeader("this replica is not the leader")

    def new_instruction_id(self) -> str:
        """A unique instruction id."""
        return f"{self.term}-{self.sequence_numbers.next()}"

    async def write(self, decide: Callable[[], RowChanges]) -> None:
        """Commit the changes that `decide` derives from the registry, then apply them to it.

        A cancelled caller does not stop the write. NotLeader when leadership is lost: it is then
        unknown whether the changes were written, and a retry is safe.
        """
        self.require_leadership()
        if decide():
            await self._shielded(self._write(decide))

    async def _write(self, decide: Callable[[], RowChanges]) -> None:
        async with self._writing:
            self.require_leadership()
            changes = decide()
            if changes:
                await self._commit(changes)

    async def _commit(self, changes: RowChanges) -> None:
        encoded = {k: None if row is None else encode(row) for k, row in changes.items()}
        commit = asyncio.ensure_future(self._store.commit(self.claim_revision, encoded))
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            with metrics.coordinator_commit_seconds.time():
                await asyncio.wait((commit, ended), return_when=asyncio.FIRST_COMPLETED)
            if not commit.done():
                raise OutcomeUnknown("leadership ended meanwhile")
            commit.result()
        except (LeadershipLost, OutcomeUnknown) as error:
            self.end(str(error))
            metrics.coordinator_commits.labels(type(error).__name__).inc()
            raise NotLeader(f"{error}; retry") from None
        finally:
            commit.cancel()
            ended.cancel()
        self.registry.apply(changes)
        metrics.coordinator_commits.labels("committed").inc()

    async def _shielded(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        await asyncio.shield(task)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # A cancelled caller does not see the error.
            level = logging.DEBUG if isinstance(error, BigFleetError) else logging.ERROR
            _LOG.log(level, "a write failed: %s", error)
