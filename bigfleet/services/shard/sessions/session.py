"""A session with one operator: requests that await an answer, and queued updates."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from bigfleet.api.v1alpha1 import shard_pb2 as wire
from bigfleet.api.v1alpha1.capacity_pb2 import NodeSelectorRequirement
from bigfleet.model.errors import BigFleetError, Unavailable
from bigfleet.model.retry_delays import RetryDelays
from bigfleet.services.shard.sessions.outbox import Outbox

ANSWER_TIMEOUT_SECONDS = 30.0
_LONGEST_SILENCE_SECONDS = 600.0
_MANY_SILENCES = 3  # three and a half minutes, and longer pauses from then on

_Answer = TypeVar("_Answer")


class BootstrapRefused(BigFleetError):
    """The operator cannot provide a machine's bootstrap data."""


class ReclaimRefused(BigFleetError):
    """The operator did not start to drain a Node: the disruption would exceed the allowed cost."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Why the shard ends a session: `replaced` by a newer one, or a protocol violation."""

    replaced: bool
    reason: str


class Session:
    """From an accepted Hello to the end of the stream. `numbers` make request ids unique."""

    def __init__(self, cluster: str, numbers: Iterator[int]) -> None:
        self.cluster = cluster
        self.outbox = Outbox()
        self.ending: Ending | None = None
        self.terminated = False
        # Machines of the operator's inquiry that are not answered yet.
        self.asked: set[str] = set()
        # Machines whose Nodes the operator is draining, with the seconds left.
        self.drains: dict[str, int] = {}
        self._numbers = numbers
        self._blobs: dict[str, asyncio.Future[bytes]] = {}
        self._acks: dict[str, asyncio.Future[int]] = {}
        self._silences = 0
        self._silent_until_seconds = -math.inf

    @property
    def is_silent(self) -> bool:
        """Whether no requests should be sent for now, because the last ones timed out."""
        return asyncio.get_running_loop().time() < self._silent_until_seconds

    @property
    def is_silent_for_long(self) -> bool:
        """Whether the operator has answered nothing through several timeouts."""
        return self._silences >= _MANY_SILENCES

    @property
    def is_on_probation(self) -> bool:
        """Whether the operator has answered nothing since its last timeout."""
        return self._silences > 0

    async def request_bootstrap(
        self, machine_id: str, requirements: Sequence[NodeSelectorRequirement]
    ) -> bytes:
        """The bootstrap data with which `machine_id` joins the cluster.

        BootstrapRefused when the operator refuses; Unavailable when the session ends first;
        TimeoutError after 30 s.
        """
        request = wire.BootstrapRequest(
            request_id=f"bootstrap-{next(self._numbers)}",
            requirements=requirements,
            cluster_id=self.cluster,
            machine_id=machine_id,
        )
        message = wire.ShardMessage(bootstrap_request=request)
        return await self._ask(self._blobs, request.request_id, message)

    async def instruct_reclaim(
        self,
        node_name: str,
        grace_seconds: int,
        preemptor_priority: int,
        max_cost: float | None = None,
        gang: str = "",
    ) -> int:
        """Have a Node cordoned and drained; return the number of Nodes started.

        `preemptor_priority` is that of the pods that wait for it, 0 when none do. ReclaimRefused
        when the disruption would cost more than `max_cost`, or no pod of `gang`, the text of its
        group, runs there.
        Unavailable when the session ends first; TimeoutError after 30 s.
        """
        instruction = wire.ReclaimInstruction(
            instruction_id=f"reclaim-{next(self._numbers)}",
            nodes=[node_name],
            grace_period_seconds=grace_seconds,
            preemptor_priority=preemptor_priority,
            max_cost=max_cost,
            gang=gang,
        )
        message = wire.ShardMessage(reclaim_instruction=instruction)
        return await self._ask(self._acks, instruction.instruction_id, message)

    def take_bootstrap(self, response: wire.BootstrapBlobResponse) -> None:
        """Take the answer to a bootstrap request; an unexpected one is ignored."""
        waiting = self._blobs.get(response.request_id)
        if waiting is None or waiting.done():
            return
        if response.error:
            waiting.set_exception(BootstrapRefused(f"cluster {self.cluster}: {response.error}"))
        else:
            waiting.set_result(response.user_data)

    def take_reclaim_ack(self, ack: wire.ReclaimAck) -> None:
        """Take the answer to a reclaim instruction; an unexpected one is ignored."""
        waiting = self._acks.get(ack.instruction_id)
        if waiting is None or waiting.done():
            return
        if ack.refused:
            waiting.set_exception(ReclaimRefused(f"cluster {self.cluster}: {ack.refused}"))
        else:
            waiting.set_result(ack.nodes_started)

    def end(self, ending: Ending | None = None) -> None:
        """Close the outbox and fail pending requests; the first ending counts."""
        self.ending = self.ending or ending
        self.outbox.close()
        unanswered: list[asyncio.Future[Any]] = [*self._blobs.values(), *self._acks.values()]
        for waiting in unanswered:
            if not waiting.done():
                waiting.set_exception(Unavailable(f"cluster {self.cluster}: its session ended"))

    def terminate(self) -> None:
        """End the session and drop queued messages, because the operator does not read."""
        self.terminated = True
        self.end()
        self.outbox.drop()

    def _note_silence(self) -> None:
        """Record a timeout; of several at the same time one counts."""
        if not self.is_silent:
            self._silences += 1
            pauses = RetryDelays(ANSWER_TIMEOUT_SECONDS, _LONGEST_SILENCE_SECONDS)
            backoff_seconds = pauses.after(self._silences)
            self._silent_until_seconds = asyncio.get_running_loop().time() + backoff_seconds

    async def _ask(
        self,
        waiting: dict[str, asyncio.Future[_Answer]],
        question_id: str,
        message: wire.ShardMessage,
    ) -> _Answer:
        answer: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        waiting[question_id] = answer
        self.outbox.put(message, question_id)
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
                await asyncio.wait([answer])
        except TimeoutError:
            self._note_silence()
            raise
        else:
            self._silences, self._silent_until_seconds = 0, -math.inf
            return await answer
        finally:
            del waiting[question_id]
            # Read later, it would cause the operator to act on an abandoned request.
            self.outbox.withdraw(question_id)
