"""The machines' stories, as JSON lines that others can join with what they saw themselves."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import IO

import msgspec

from bigfleet.model.errors import BigFleetError
from bigfleet.model.machine import MachineState
from bigfleet.ports.clock import Clock
from bigfleet.services.shard.orders import Order

_REMEMBERED = 10_000


class Journal:
    """Collects events and writes them on `flush`; without a path it only remembers the newest.

    A line speaks of an order by its machine and by `decided`, the Unix time of its decision: a
    machine has at most one order at a time, so both together name one choice for good. `cluster` is
    where the machine goes, or is taken from, and `claimant` the one whose need it is chosen for.
    `grace` are the seconds that the pods of a machine that is taken have to leave.
    `begin` adds to every later line which shard and which of its lives it comes from.
    """

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self._clock = clock
        self._writer: dict[str, object] = {}
        self._file = _open(path) if path else None
        self._unwritten: list[dict[str, object]] = []
        self._recent: deque[dict[str, object]] = deque(maxlen=_REMEMBERED)

    def begin(self, shard_id: str, epoch: int) -> None:
        """From now on the lines are this shard's, in this life of it."""
        self._writer = {"shard": shard_id, "epoch": epoch}

    def note(self, event: str, **fields: object) -> None:
        """Record `event` as of now; fields that are None or "" are left out."""
        said = {name: value for name, value in fields.items() if value not in (None, "")}
        line = {"at": self._clock.unix_seconds(), "event": event, **said, **self._writer}
        self._recent.append(line)
        if self._file is not None:
            self._unwritten.append(line)

    def note_order(self, event: str, order: Order, **fields: object) -> None:
        """Record `event` about an order, with all that tells it from every other order."""
        need = order.need_key
        self.note(
            event,
            machine=order.machine_id,
            kind=order.kind.value,
            cluster=order.cluster,
            claimant=need.cluster if need else None,
            need=need.fingerprint if need else None,
            group=need.group if need else None,
            decided=order.decided_seconds,
            grace=order.grace_seconds if order.leads_to is MachineState.DRAINING else None,
            **fields,
        )

    def story(self, machine_id: str) -> list[dict[str, object]]:
        """What was lately recorded about one machine, oldest first."""
        return [line for line in self._recent if line.get("machine") == machine_id]

    def flush(self) -> None:
        """Hand everything recorded so far to the operating system."""
        if self._file is not None and self._unwritten:
            lines = msgspec.json.Encoder().encode_lines(self._unwritten)
            self._unwritten = []
            self._file.write(lines)
            self._file.flush()

    def close(self) -> None:
        """Flush, then close the file."""
        self.flush()
        if self._file is not None:
            self._file.close()


def _open(path: Path) -> IO[bytes]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("ab")
    except OSError as error:
        raise BigFleetError(
            f"journal {path}: cannot be written ({error.strerror}); "
            "name a file in a directory that the shard can write to"
        ) from None
