"""One leader's time: its term, its writes one after the other, and its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from bigfleet.model.errors import BigFleetError, Unavailable
from bigfleet.observe import metrics
from bigfleet.ports.clock import Clock
from bigfleet.ports.coordination import CoordinationStore, LeadershipLost, OutcomeUnknown
from bigfleet.services.coordinator.registry import Registry
from bigfleet.services.coordinator.reports import Reports
from bigfleet.services.coordinator.rows import RowChanges, encode

_LOG = logging.getLogger(__name__)
# Without a word from its own member for so long, a leader does not know that it still is one.
LEASE_SECONDS = 0.4


class NotLeader(Unavailable):
    """This replica does not lead, or cannot be sure that it does: ask the one that does."""


class SequenceNumbers:
    """Sequence numbers of one process; they never go back, whatever the term."""

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        """One that was not given before."""
        self._last += 1
        return self._last

    def advance_past(self, used: int) -> None:
        """Continue after a number that is known to be used."""
        self._last = max(self._last, used)


class LeaderTerm:
    """Leadership in `term`, from a claim in the store until `end`.

    `registry` holds what was committed, `reports` what shards told this leader, `clock` is its
    host's: whatever is aged or waited for is measured by its steady seconds.
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
        """The member has just said that it still leads in this term."""
        self._renewed_seconds = self.clock.monotonic_seconds()

    @property
    def lease_valid(self) -> bool:
        """Whether it may still answer. Time in which this process was stopped counts."""
        return self.clock.monotonic_seconds() - self._renewed_seconds <= LEASE_SECONDS

    def end(self, why: str) -> None:
        """Answer nothing more; what is being written is given up."""
        if not self.ended:
            self._ended.set()
            _LOG.info("no longer leading: %s", why, extra={"term": self.term})

    def require_leadership(self) -> None:
        """NotLeading unless this replica leads as far as it can know."""
        if self.ended or not self.lease_valid:
            raise NotLeader("this replica is not the leader")

    def new_instruction_id(self) -> str:
        """The id of an instruction, never given twice."""
        return f"{self.term}-{self.sequence_numbers.next()}"

    async def write(self, decide: Callable[[], RowChanges]) -> None:
        """Commit what `decide` makes of the registry as it then is; only then is it visible.

        A caller that goes away meanwhile does not stop it. NotLeading when leadership is lost: it
        is then unknown whether it was written, and asking again is safe.
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
            raise NotLeader(f"{error}; ask again") from None
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
            # Its caller may have gone, and the error with it.
            level = logging.DEBUG if isinstance(error, BigFleetError) else logging.ERROR
            _LOG.log(level, "a write failed: %s", error)
