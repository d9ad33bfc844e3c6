"""The scope of a part of a run on this machine: sweep, data directory, reaper."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from loaddriver.substrates.datadir import DataDirectory, data_roots, root_with_space, sweep
from loaddriver.substrates.reaper.handle import Reaper
from loaddriver.substrates.runlock import RunLock, holder_here


@dataclass
class RunScope:
    """Open it before anything is started, close it after everything was stopped.

    If the runner does not call `close`, the reaper cleans up on its own and holds the lock until
    then. `swept` reports what was removed of earlier runs.
    """

    run_id: str
    data_directory: Path
    swept: Sequence[str]
    _data: DataDirectory
    _reaper: Reaper
    _own_lock: RunLock | None = None

    @classmethod
    def within(cls, lock: RunLock, run_id: str, log_directory: Path) -> RunScope:
        """Open a scope for a part of the run that holds `lock`, which stays locked afterwards.

        Raises SubstrateError, leaving nothing behind.
        """
        with ExitStack() as undo:
            swept = tuple(report.sentence(run_id) for run_id, report in sweep(data_roots()))
            data = DataDirectory.create(run_id, root_with_space(data_roots()))
            undo.callback(data.discard)
            locks = (lock.descriptor, data.descriptor)
            reaper = Reaper.start(run_id, [data.path], locks, log_directory / "reaper.log")
            undo.pop_all()
        return cls(run_id, data.path, swept, data, reaper)

    @classmethod
    def open(cls, run_id: str, profile: str, log_directory: Path, lock_path: Path) -> RunScope:
        """Open a scope for a command that does not measure, with its own lock at `lock_path`.

        Raises MachineBusy or SubstrateError, leaving nothing behind.
        """
        lock = RunLock.acquire(lock_path, holder_here(profile))
        with ExitStack() as undo:
            undo.callback(lock.release)
            scope = replace(cls.within(lock, run_id, log_directory), _own_lock=lock)
            undo.pop_all()
        return scope

    async def close(self) -> str:
        """Clean up and return a one-line report. Raises SubstrateError."""
        try:
            return await self._reaper.close()
        finally:
            self._data.close()
            if self._own_lock is not None:
                self._own_lock.release()
