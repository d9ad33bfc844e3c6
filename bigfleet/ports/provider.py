"""The capacity provider as a shard sees it, and the requirements on implementations.

All calls are asynchronous. MUST and MAY bind every implementation, in process or over the wire.

Retries. A mutation returns as soon as it is durably accepted; its progress shows in `get` and
`list`. Repeated for the same machine and target state, in progress or finished, it MUST return the
same operation id and start nothing new.

Crashes. An accepted operation MUST survive a crash of the provider and be resumed. A machine keeps
its id for its whole life, and an operation that cannot succeed MUST end in FAILED with
`last_error`; no machine stays in a transitional state for ever.

Reordering. Every mutation carries a Fence. A provider MUST keep, per (shard, machine), the largest
(epoch, sequence) it has seen, and MUST reject with Fenced whatever is not strictly larger, before
any other check; the fence advances even if the request then fails. So a late duplicate of an old
request has no effect, and neither has a request of a shard that has been replaced.

Source of truth. Only the provider knows the state of a machine. It MAY report any transition at any
time (a spot machine interrupted, a failed one recovered); the shard adopts it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bigfleet.model.errors import InvalidInput
from bigfleet.model.machine import Machine

# A shard increments the epoch in its own file at each start. The gap keeps an old copy of that file
# from reaching an epoch that was claimed after the file was lost.
EPOCHS_SKIPPED = 1_000_000


@dataclass(frozen=True, slots=True)
class Fence:
    """The fencing token of a request: (epoch, sequence) only ever grows per shard."""

    shard_id: str
    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Operation:
    """An accepted request: its id, which retries get as well, and the machine's current state."""

    id: str
    machine: Machine


@dataclass(frozen=True)
class Listing:
    """A page of a listing of machines."""

    machines: Sequence[Machine]
    #: invalid records by machine id
    rejected: Mapping[str, InvalidInput]
    #: on the last page: changes after it are listed next time
    revision: bytes
    #: "" if it is not known, as with some providers while they have no host
    provider_name: str
    #: machines that are not read again, by id
    unchanged: Collection[str] = ()


#: Of machines, given by their ids and the digests of their records, those whose last record that
#: was applied had this digest.
Unchanged = Callable[[Sequence[str], Sequence[int]], Collection[str]]


def nothing_known(_ids: Sequence[str], _digests: Sequence[int]) -> Collection[str]:
    """Whoever reads a listing for the first time knows no machine."""
    return ()


class CapacityProvider(Protocol):
    """Client of a capacity provider.

    Every call may raise Unavailable; the request may have been accepted all the same. Mutations
    also raise Fenced (not retryable), UnknownObject (no such machine) and IllegalTransition (the
    machine's state does not allow it; nothing was done). An invalid answer raises InvalidInput.
    """

    async def create(
        self, machine_id: str, shard_metadata: Mapping[str, str], fence: Fence
    ) -> Operation:
        """SPECULATIVE -> CREATING -> IDLE: create the machine.

        `shard_metadata` says for which need, so that a restarted shard does not create another one.
        It MUST be kept and echoed until the machine is configured or deleted.
        """
        ...

    async def configure(
        self,
        machine_id: str,
        cluster: str,
        bootstrap_blob: bytes,
        shard_metadata: Mapping[str, str],
        fence: Fence,
    ) -> Operation:
        """IDLE -> CONFIGURING -> CONFIGURED, the latter only once the machine's Node is Ready.

        `shard_metadata` MUST be kept and echoed byte for byte while the machine is bound: a
        restarted shard restores the machine's purpose from it. It is dropped when the drain ends.
        """
        ...

    async def drain(self, machine_id: str, grace_seconds: int, fence: Fence) -> Operation:
        """CONFIGURED -> DRAINING -> IDLE once its Node is gone or the grace is over."""
        ...

    async def delete(self, machine_id: str, fence: Fence) -> Operation:
        """IDLE -> DELETING -> SPECULATIVE: delete the machine."""
        ...

    async def claim_epoch(self, shard_id: str, at_least: int) -> int:
        """A new epoch for a shard that has lost its own: at least `at_least`, and larger by
        EPOCHS_SKIPPED than any that this shard has used or been given. From then on requests of
        older epochs MUST be Fenced for every machine. Optional: a provider without it returns
        `at_least`.
        """
        ...

    async def get(self, machine_id: str) -> Machine:
        """One machine; raises UnknownObject if there is none with that id."""
        ...

    def list(
        self, since_revision: bytes = b"", unchanged: Unchanged = nothing_known
    ) -> AsyncGenerator[Listing, None]:
        """All machines, or those changed since `since_revision` of an earlier Listing, page by
        page: at least one.

        A provider that no longer has that revision MUST return all machines. A deleted record is
        merely absent, which only a full listing shows. Pages are not a snapshot: a machine MUST be
        on at least one page if it is there throughout, and if it changes after its page was read,
        on a later one or in a listing since the last page's revision. A provider without pages MAY
        return everything as one. Unavailable on a later page: begin again.

        Of machines that are `unchanged` an implementation MAY return the ids alone. It is asked
        about a page once the page before has been consumed, which may change the answer.
        """
        ...

    async def close(self) -> None:
        """Close all connections; no call follows."""
        ...
