"""A provider in memory, for tests: conforms to the contract and lets a test drive every step."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import replace

from bigfleet.model.errors import Fenced, Unavailable, UnknownObject
from bigfleet.model.machine import TRANSITIONAL, Machine, MachineEvent, MachineState, next_state
from bigfleet.ports.provider import (
    EPOCHS_SKIPPED,
    Fence,
    Listing,
    Operation,
    Unchanged,
    nothing_known,
)

_SUCCESS = {
    MachineState.CREATING: MachineEvent.CREATED,
    MachineState.CONFIGURING: MachineEvent.JOINED,
    MachineState.DRAINING: MachineEvent.DRAINED,
    MachineState.DELETING: MachineEvent.DELETED,
}
# The states in which an operation is in progress or done, so that a repeated call starts nothing.
_IN_PROGRESS = {
    MachineEvent.CREATE: (MachineState.CREATING,),
    MachineEvent.CONFIGURE: (MachineState.CONFIGURING, MachineState.CONFIGURED),
    MachineEvent.DRAIN: (MachineState.DRAINING,),
    MachineEvent.DELETE: (MachineState.DELETING,),
}


class MemoryProvider:
    """A `ports.provider.CapacityProvider` that follows the machine lifecycle.

    Transitions end when `finish` is called, or at the next `list` if `auto_finish`.
    `reachable = False` makes every call raise Unavailable. `orders` and `blobs` record accepted
    calls. It has no pages.
    """

    name = "memory"

    def __init__(self, machines: Iterable[Machine] = (), *, auto_finish: bool = False):
        self.reachable = True
        self.orders: list[tuple[str, str, Fence]] = []
        self.blobs: dict[str, bytes] = {}
        self.auto_finish = auto_finish
        self._machines: dict[str, Machine] = {}
        self._changed_at: dict[str, int] = {}
        self._operations: dict[str, tuple[str, MachineEvent]] = {}
        self._fencing_tokens: dict[tuple[str, str], tuple[int, int]] = {}
        self._claimed: dict[str, int] = {}
        self._revision = 0
        for machine in machines:
            self.report(machine)

    async def create(
        self, machine_id: str, shard_metadata: Mapping[str, str], fence: Fence
    ) -> Operation:
        """Start to create the machine."""
        bought = {"shard_metadata": dict(shard_metadata)}
        return self._order(machine_id, MachineEvent.CREATE, fence, bought)

    async def configure(
        self,
        machine_id: str,
        cluster: str,
        bootstrap_blob: bytes,
        shard_metadata: Mapping[str, str],
        fence: Fence,
    ) -> Operation:
        """Start to bind the machine to `cluster`."""
        bound = {"cluster": cluster, "shard_metadata": dict(shard_metadata)}
        operation = self._order(machine_id, MachineEvent.CONFIGURE, fence, bound)
        self.blobs[machine_id] = bootstrap_blob
        return operation

    async def drain(self, machine_id: str, grace_seconds: int, fence: Fence) -> Operation:
        """Start to drain the machine; the grace period is ignored."""
        del grace_seconds
        return self._order(machine_id, MachineEvent.DRAIN, fence, {})

    async def delete(self, machine_id: str, fence: Fence) -> Operation:
        """Start to delete the machine."""
        return self._order(machine_id, MachineEvent.DELETE, fence, {})

    async def claim_epoch(self, shard_id: str, at_least: int) -> int:
        """An epoch far above all that this shard has used."""
        self._check_reachable()
        shown = [
            epoch for (shard, _), (epoch, _) in self._fencing_tokens.items() if shard == shard_id
        ]
        newest = max([*shown, self._claimed.get(shard_id, 0)])
        self._claimed[shard_id] = max(newest + EPOCHS_SKIPPED if newest else 1, at_least)
        return self._claimed[shard_id]

    async def get(self, machine_id: str) -> Machine:
        """The machine's current record."""
        self._check_reachable()
        return self._known(machine_id)

    async def list(
        self, since_revision: bytes = b"", unchanged: Unchanged = nothing_known
    ) -> AsyncGenerator[Listing, None]:
        """Machines changed after `since_revision`, in the order of their ids, as one page."""
        del unchanged
        self._check_reachable()
        if self.auto_finish:
            self.finish_all()
        since = int(since_revision or b"0")
        changed = [m for i, m in sorted(self._machines.items()) if self._changed_at[i] > since]
        yield Listing(changed, {}, b"%d" % self._revision, self.name)

    async def close(self) -> None:
        """Does nothing."""

    def finish(self, machine_id: str) -> Machine:
        """Complete the machine's transition."""
        machine = self._known(machine_id)
        return self._move(machine, _SUCCESS[machine.state])

    def finish_all(self) -> None:
        """Complete all transitions."""
        for machine in list(self._machines.values()):
            if machine.state in TRANSITIONAL:
                self.finish(machine.id)

    def fail(self, machine_id: str, error: str) -> Machine:
        """Make the machine FAILED; it stays bound to its cluster."""
        return self._move(self._known(machine_id), MachineEvent.FAIL, last_error=error)

    def report(self, machine: Machine) -> None:
        """Set the machine's record."""
        self._revision += 1
        self._machines[machine.id] = machine
        self._changed_at[machine.id] = self._revision

    def forget(self, machine_id: str) -> None:
        """Remove the machine's record."""
        del self._machines[machine_id]

    def _order(
        self, machine_id: str, event: MachineEvent, fence: Fence, changes: Mapping[str, object]
    ) -> Operation:
        self._check_reachable()
        self._check_fence(machine_id, fence)
        machine = self._known(machine_id)
        last_id, last_event = self._operations.get(machine_id, ("", None))
        if last_event is event and machine.state in _IN_PROGRESS[event]:
            return Operation(last_id, machine)
        moved = self._move(machine, event, **changes)
        operation_id = f"{machine_id}/{fence.epoch}.{fence.sequence}"
        self._operations[machine_id] = (operation_id, event)
        self.orders.append((event.name, machine_id, fence))
        return Operation(operation_id, moved)

    def _check_reachable(self) -> None:
        if not self.reachable:
            raise Unavailable("the provider is unreachable")

    def _check_fence(self, machine_id: str, fence: Fence) -> None:
        owner, token = (fence.shard_id, machine_id), (fence.epoch, fence.sequence)
        if token <= self._fencing_tokens.get(owner, (0, 0)):
            raise Fenced(
                f"machine {machine_id}: {token} is not newer than {self._fencing_tokens[owner]}"
            )
        if fence.epoch < (claimed := self._claimed.get(fence.shard_id, 0)):
            raise Fenced(f"machine {machine_id}: epoch {fence.epoch} is older than {claimed}")
        self._fencing_tokens[owner] = token

    def _known(self, machine_id: str) -> Machine:
        try:
            return self._machines[machine_id]
        except KeyError:
            raise UnknownObject(f"no machine {machine_id}") from None

    def _move(self, machine: Machine, event: MachineEvent, **changes: object) -> Machine:
        state = next_state(machine.id, machine.state, event)
        if event in (MachineEvent.DRAINED, MachineEvent.DELETE, MachineEvent.RECOVER):
            changes |= {"cluster": "", "shard_metadata": {}}
        if state is MachineState.IDLE:
            changes |= {"host": f"host-of-{machine.id}"}
        if state is MachineState.SPECULATIVE:
            changes |= {"host": ""}
        moved = replace(machine, state=state, **changes)  # type: ignore[arg-type]
        self.report(moved)
        return moved
