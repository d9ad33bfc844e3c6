"""Restores a snapshot into a new single-member etcd cluster, which other replicas can join."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path

from bigfleet.adapters.coordination.etcd_member import EtcdMember, EtcdMemberConfig
from bigfleet.adapters.coordination.etcd_store import EtcdStore
from bigfleet.adapters.store.directory_lock import DirectoryLock
from bigfleet.model.errors import InvalidInput, Unavailable
from bigfleet.services.coordinator.rows import Row, encode
from bigfleet.services.coordinator.snapshot import Meta, restored

_POLL_INTERVAL_SECONDS = 0.05
_START_TIMEOUT_SECONDS = 30.0
_BATCH_ROWS = 1000


async def restore(file: Path, member: EtcdMemberConfig) -> Meta:
    """Restore the snapshot in `file` into the state directory of `member`, which must be empty.

    The replica then starts as usual. InvalidInput for an unusable file or directory, Unavailable
    when etcd does not run; nothing is left behind in either case.
    """
    meta, rows = await asyncio.to_thread(_read, file)
    if member.data.exists():
        hint = "already contains a coordinator's state; restore into an empty directory"
        raise InvalidInput("--state", str(member.directory), hint)
    peers = {name: address for name, address in member.peers.items() if name == member.name}
    lock = DirectoryLock("--state", member.directory, "fleet restore")
    try:
        await _fill(replace(member, peers=peers, joining=False), rows)
    except BaseException:
        shutil.rmtree(member.data, ignore_errors=True)
        raise
    finally:
        lock.release()
    return meta


def _read(file: Path) -> tuple[Meta, Mapping[str, Row]]:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InvalidInput("snapshot", str(file), f"cannot be read: {error.strerror}") from None
    return restored(str(file), content)


async def _fill(config: EtcdMemberConfig, rows: Mapping[str, Row]) -> None:
    member = await EtcdMember.start(config)
    store = EtcdStore(config.socket)
    ended = asyncio.create_task(member.ended())
    try:
        async with asyncio.timeout(_START_TIMEOUT_SECONDS):
            while not await _leads(store):
                if ended.done():
                    raise Unavailable(ended.result())
                await asyncio.sleep(_POLL_INTERVAL_SECONDS)
        left = iter(rows.items())
        while batch := {key: encode(row) for key, row in islice(left, _BATCH_ROWS)}:
            await store.commit(0, batch)
    except TimeoutError:
        raise Unavailable(f"etcd did not start; see {config.log}") from None
    finally:
        ended.cancel()
        await store.close()
        await member.stop()


async def _leads(store: EtcdStore) -> bool:
    try:
        return (await store.leadership_status()).is_leader
    except Unavailable:
        return False
