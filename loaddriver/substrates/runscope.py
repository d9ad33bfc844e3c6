"""What frames every run on this machine: lock, sweep, data directory, warden."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from loaddriver.substrates.datadir import DataDirectory, data_roots, roomiest_root, sweep
from loaddriver.substrates.runlock import Holder, RunLock, machine_lock_path
from loaddriver.substrates.warden.handle import Warden


@dataclass
class RunScope:
    """Open before anything is started, close after everything was stopped.

    Should the runner never come to `close`, the warden does the same on its own. `swept` says
    what was left by runs that the machine itself cut short.
    """

    run_id: str
    data_directory: Path
    swept: Sequence[str]
    _lock: RunLock
    _data: DataDirectory
    _warden: Warden

    @classmethod
    def open(
        cls, run_id: str, profile: str, log_directory: Path, lock_path: Path | None = None
    ) -> RunScope:
        """Claim the machine for one run.

        `lock_path` is for those who do not measure and so need not be alone on the machine.
        Raises MachineBusy or SubstrateError, leaving nothing behind.
        """
        with ExitStack() as undo:
            lock = RunLock.acquire(lock_path or machine_lock_path(), _holder(profile))
            undo.callback(lock.release)
            swept = tuple(account.sentence(run_id) for run_id, account in sweep(data_roots()))
            data = DataDirectory.create(run_id, roomiest_root(data_roots()))
            undo.callback(data.discard)
            locks = (lock.descriptor, data.descriptor)
            warden = Warden.start(run_id, [data.path], locks, log_directory / "warden.log")
            undo.pop_all()
        return cls(run_id, data.path, swept, lock, data, warden)

    async def close(self) -> str:
        """Clean up, free the machine, return a one-line account. Raises SubstrateError."""
        try:
            return await self._warden.close()
        finally:
            self._data.close()
            self._lock.release()


def _holder(profile: str) -> Holder:
    return Holder(os.getpid(), profile, datetime.now(UTC).isoformat(timespec="seconds"))
