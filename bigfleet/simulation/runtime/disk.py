"""Disks that truncate, lose and reject writes, and processes that crash at a write."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bigfleet.services.provider.store import Store
from bigfleet.simulation.runtime.faults import FaultInjector


class Crash(BaseException):
    """The process has crashed; must not be caught and ignored."""


class SimulatedFiles:
    """A `ports.files.Files` in memory that outlives the process writing to it.

    Each write may fail, wholly or in part, or crash the process before, during or after it. A crash
    calls `crashed`; until `mount` nothing can be written.
    """

    def __init__(self, injector: FaultInjector, crashed: Callable[[], None]) -> None:
        self._injector, self._crashed = injector, crashed
        self._files: dict[Path, bytes] = {}
        self._flushed: dict[Path, bytes] = {}
        self._alive = True

    def mount(self) -> None:
        """The process has restarted."""
        self._alive = True

    def cut_power(self) -> None:
        """Lose everything that was not flushed."""
        self._files = dict(self._flushed)

    def wipe(self) -> None:
        """Replace the disk with an empty one."""
        self._files, self._flushed = {}, {}

    def read(self, path: Path) -> bytes:
        """See `ports.files.Files`."""
        try:
            return self._files[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path)) from None

    def replace(self, path: Path, content: bytes) -> None:
        """See `ports.files.Files`; a partial write is never visible."""
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
        """The part of a write that is done: nothing, all or some of it, equally likely."""
        return min(1.0, max(0.0, self._injector.uniform(-1.0, 2.0)))


class SimulatedStore(Store):
    """The provider's store; each transaction may fail or crash the provider.

    A crash calls `crashed`; from then on nothing can be written.
    """

    def __init__(
        self, directory: Path, injector: FaultInjector, crashed: Callable[[], None]
    ) -> None:
        self._injector: FaultInjector | None = None  # no faults while it is opened
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
        """Crash: the caller gets no response."""
        self._alive = False
        self._crashed()
        raise sqlite3.OperationalError("the provider has crashed")
