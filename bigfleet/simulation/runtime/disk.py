"""Disks that tear, lose and refuse what is written to them, and hosts that die at a write."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bigfleet.services.provider.store import Store
from bigfleet.simulation.runtime.faults import FaultInjector


class Crash(BaseException):
    """The process is no more: nobody may catch this and go on."""


class SimulatedFiles:
    """A `ports.files.Files` in memory, which outlives the process that writes to it.

    Each write may be refused, wholly or in part, and may be the last thing that the process does:
    before it, amidst it or after it. `crashed` is told; until `mount` nothing can be written.
    """

    def __init__(self, injector: FaultInjector, crashed: Callable[[], None]) -> None:
        self._injector, self._crashed = injector, crashed
        self._files: dict[Path, bytes] = {}
        self._flushed: dict[Path, bytes] = {}
        self._alive = True

    def mount(self) -> None:
        """The next life of the process begins."""
        self._alive = True

    def cut_power(self) -> None:
        """What was not flushed may be lost: all of it is."""
        self._files = dict(self._flushed)

    def wipe(self) -> None:
        """The disk is replaced by an empty one."""
        self._files, self._flushed = {}, {}

    def read(self, path: Path) -> bytes:
        """See `ports.files.Files`."""
        try:
            return self._files[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path)) from None

    def replace(self, path: Path, content: bytes) -> None:
        """See `ports.files.Files`; half of it is never seen."""
        self._inject_fault(lambda part: self._keep(path, content) if part == 1.0 else None)
        self._keep(path, content)

    def append(self, path: Path, piece: bytes) -> None:
        """See `ports.files.Files`."""
        before = self._files.get(path, b"")

        def write(part: float) -> None:
            self._files[path] = before + piece[: int(part * len(piece))]

        self._inject_fault(write)
        write(1.0)

    def _keep(self, path: Path, content: bytes) -> None:
        self._files[path] = self._flushed[path] = content

    def _inject_fault(self, write: Callable[[float], None]) -> None:
        if not self._alive:
            raise Crash
        if self._injector.occurs("crash_at_write"):
            write(self._part())
            self._alive = False
            self._crashed()
            raise Crash
        if self._injector.occurs("disk_full"):
            write(min(self._part(), 0.9))
            raise OSError(errno.ENOSPC, "No space left on device")

    def _part(self) -> float:
        """How much of a write is done: as likely nothing or all as something in between."""
        return min(1.0, max(0.0, self._injector.uniform(-1.0, 2.0)))


class SimulatedStore(Store):
    """The provider's store; each change may be refused, or be the last thing that it does.

    `crashed` is told; from then on nothing can be written.
    """

    def __init__(
        self, directory: Path, injector: FaultInjector, crashed: Callable[[], None]
    ) -> None:
        self._injector: FaultInjector | None = None  # what is prepared goes well
        super().__init__(directory)
        self._injector, self._crashed = injector, crashed
        self._alive = True

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        injector = self._injector
        with super()._transaction():
            yield
            if injector is not None and (not self._alive or injector.occurs("disk_full")):
                raise sqlite3.OperationalError("database or disk is full")
            dies = injector is not None and injector.occurs("crash_at_write")
            if dies and injector is not None and injector.uniform(0.0, 1.0) < 0.5:
                self._die()
        if dies:
            self._die()

    def _die(self) -> None:
        """Whoever asked gets no answer."""
        self._alive = False
        self._crashed()
        raise sqlite3.OperationalError("the provider has crashed")
