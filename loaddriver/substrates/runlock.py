"""The machine lock: concurrent measuring runs would disturb each other."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from loaddriver.substrates.base import SubstrateError


class MachineBusy(SubstrateError):
    """Another measuring run holds the lock of this machine."""


@dataclass(frozen=True)
class Holder:
    """The holder of the lock; `started_at` is an ISO 8601 time."""

    pid: int
    profile: str
    started_at: str


class RunLock:
    """A file lock, released by the kernel once no process has it open."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def acquire(cls, path: Path, holder: Holder) -> RunLock:
        """Take the lock and write the holder's details to it.

        Raises MachineBusy with the run that holds it, and SubstrateError if the file cannot be
        locked.
        """
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise SubstrateError(f"cannot open the run lock {path}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = os.pread(descriptor, 4096, 0)
            os.close(descriptor)
            raise MachineBusy(_refusal(other, path)) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(asdict(holder)).encode(), 0)
        return cls(descriptor)

    @classmethod
    def inherited(cls, descriptor: int, path: Path) -> RunLock:
        """The lock that another process holds and passed to this one. Raises SubstrateError."""
        try:
            same = os.path.samestat(os.fstat(descriptor), path.stat())
        except OSError as error:
            raise SubstrateError(f"descriptor {descriptor}: {error.strerror}") from None
        if not same:
            raise SubstrateError(f"descriptor {descriptor} is not the run lock {path}")
        return cls(descriptor)

    def release(self) -> None:
        """Release it; a reaper that inherited the lock holds it until it exits."""
        os.close(self.descriptor)


@contextmanager
def machine_claimed(profile: str, inherited: int | None = None) -> Iterator[RunLock]:
    """Hold this machine for a run with all its parts, also by a lock that was inherited.

    Raises MachineBusy.
    """
    path = machine_lock_path()
    lock = (
        RunLock.acquire(path, holder_here(profile))
        if inherited is None
        else RunLock.inherited(inherited, path)
    )
    try:
        yield lock
    finally:
        lock.release()


def holder_here(profile: str) -> Holder:
    """This process as a holder."""
    return Holder(os.getpid(), profile, datetime.now(UTC).isoformat(timespec="seconds"))


def machine_lock_path() -> Path:
    """The path of this user's machine lock."""
    return Path(tempfile.gettempdir()) / f"bigfleet-scaletest-{os.getuid()}.lock"


def current_holder(path: Path) -> Holder | None:
    """The current holder, or None. Has no side effects."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_holder(os.pread(descriptor, 4096, 0)) or Holder(0, "unknown", "")
    finally:
        os.close(descriptor)
    return None


def _read_holder(content: bytes) -> Holder | None:
    try:
        return Holder(**json.loads(content))
    except (ValueError, TypeError):
        return None


def _refusal(content: bytes, path: Path) -> str:
    other = _read_holder(content)
    if other is None:
        return f"another measuring run is just starting on this machine (lock {path}); wait for it"
    who = f"pid {other.pid}, profile {other.profile}, started {other.started_at}"
    if not Path(f"/proc/{other.pid}").exists():
        return (
            f"the last measuring run ({who}) is still being cleaned up; try again in some seconds"
        )
    return (
        f"another measuring run is under way on this machine: {who}; "
        f"wait for it, or end it with: kill -INT {other.pid}"
    )
