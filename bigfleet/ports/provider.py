"""Where machines come from, as the shard sees it, and what a provider MUST do.

Six calls, all asynchronous. The words MUST and MAY bind whoever implements this, in process or
over the wire.

Retry. A mutation answers as soon as it is durably accepted; its progress shows in `get` and
`list`. Repeated for the same machine and target state, while under way or already there, it MUST
return the same operation id and start nothing new.

Crash. What was accepted MUST survive the provider's own crash and be carried on after it. A machine
keeps its id for its whole life, and an operation that cannot succeed MUST end in FAILED with
`last_error`, never in a transitional state for ever.

Reorder. Every mutation carries a Fence. A provider MUST keep, per (shard, machine), the largest
(epoch, sequence) it has seen, and MUST refuse with Fenced whatever is not strictly larger, before
it looks at anything else; the mark advances even where the order then fails. So a late duplicate
of an old order can undo nothing, and a shard that has been replaced can order nothing.

Truth. The provider alone knows what a machine is. It MAY report any move at any time (a spot
machine gone, a failed one healthy again); the shard adopts it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bigfleet.model.errors import InvalidInput
from bigfleet.model.machine import Machine

# A shard counts its starts up from its own file. So an old copy of that file never leads to an
# epoch that was given to a shard without one.
EPOCHS_SKIPPED = 1_000_000


@dataclass(frozen=True, slots=True)
class Fence:
    """Who gives an order, and how new it is: (epoch, sequence) only ever grows per shard."""

    shard_id: str
    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Operation:
    """An accepted order: the id that a repetition gets again, and the machine as it is now."""

    id: str
    machine: Machine


@dataclass(frozen=True)
class Listing:
    """Machines as they were at `revision`; `rejected` says by id which records cannot be right.

    `provider_name` is what the provider calls itself, "" while it has no host.
    """

    machines: Sequence[Machine]
    rejected: Mapping[str, InvalidInput]
    revision: bytes
    provider_name: str


class CapacityProvider(Protocol):
    """Every call may raise Unavailable: nothing is known then, not even that it failed.

    Mutations also raise Fenced (terminal for the sender), UnknownObject (no such machine) and
    IllegalTransition (the machine's state does not allow it; nothing was done). An answer that
    cannot be right raises InvalidInput.
    """

    async def create(
        self, machine_id: str, shard_metadata: Mapping[str, str], fence: Fence
    ) -> Operation:
        """SPECULATIVE -> CREATING -> IDLE: buy the machine.

        `shard_metadata` says for whom: a restarted shard would else buy another one. It MUST be
        kept and echoed until the machine is configured or given back.
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

        `shard_metadata` MUST be kept and echoed byte for byte while the machine is bound: it is
        what a restarted shard knows of the machine's purpose. It goes when the drain ends.
        """
        ...

    async def drain(self, machine_id: str, grace_seconds: int, fence: Fence) -> Operation:
        """CONFIGURED -> DRAINING -> IDLE once its Node is gone or the grace is over."""
        ...

    async def delete(self, machine_id: str, fence: Fence) -> Operation:
        """IDLE -> DELETING -> SPECULATIVE: give the machine back to its seller."""
        ...

    async def claim_epoch(self, shard_id: str, at_least: int) -> int:
        """A new epoch for a shard that has lost its own: not below `at_least`, and larger by
        EPOCHS_SKIPPED than any that this shard has shown or been given. From then on orders of its
        older epochs MUST be Fenced for every machine. A provider MAY not offer it; then the answer
        is `at_least`.
        """
        ...

    async def get(self, machine_id: str) -> Machine:
        """One machine; UnknownObject when there is none of that id."""
        ...

    async def list(self, since_revision: bytes = b"") -> Listing:
        """All machines, or those changed after `since_revision`, from an earlier Listing.

        A provider that no longer knows that revision MUST answer with all machines. A machine that
        no longer exists is simply absent: only a full listing shows that.
        """
        ...

    async def close(self) -> None:
        """Let go of connections; no call follows."""
        ...
