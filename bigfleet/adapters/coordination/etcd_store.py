"""The coordination store in etcd, through the coordinator's own member."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from bigfleet.adapters.coordination.etcdrpc import etcd_pb2 as rpc
from bigfleet.adapters.coordination.etcdrpc import etcd_pb2_grpc as stubs
from bigfleet.model.errors import BigFleetError, Unavailable
from bigfleet.ports.coordination import (
    LEADER_KEY,
    Changes,
    LeadershipLost,
    LeadershipStatus,
    Member,
    OutcomeUnknown,
    WatchUpdate,
)

_PREFIX = b"/bigfleet/"
_END = b"/bigfleet0"  # the first key after all that begin with the prefix
_LEADER = _PREFIX + LEADER_KEY.encode()
_PAGE_ROWS = 2000
_STATUS_TIMEOUT_SECONDS = 0.2
_READ_SECONDS = 2.0
_WRITE_SECONDS = 2.0
_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.max_receive_message_length", 64 * 2**20),
    # A restarted member on the same socket must not inherit the old connection.
    ("grpc.use_local_subchannel_pool", 1),
)
# etcd rejected the request; nothing was written.
_REJECTED_CODES = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.NOT_FOUND,
    }
)


class EtcdStore:
    """`CoordinationStore` over the Unix socket of one member."""

    def __init__(self, socket: Path) -> None:
        self._channel = grpc.aio.insecure_channel(f"unix:{socket}", options=_OPTIONS)
        self._kv: Any = stubs.KVStub(self._channel)
        self._watch: Any = stubs.WatchStub(self._channel)
        self._cluster: Any = stubs.ClusterStub(self._channel)
        self._maintenance: Any = stubs.MaintenanceStub(self._channel)

    async def leadership_status(self) -> LeadershipStatus:
        """The member's own view."""
        status = await _ask(self._maintenance.Status, rpc.StatusRequest(), _STATUS_TIMEOUT_SECONDS)
        return LeadershipStatus(status.header.member_id, status.leader, status.raftTerm)

    async def watch(self) -> AsyncIterator[WatchUpdate]:
        """All rows as this member has them, then every change. Ends with Unavailable."""
        revision, rows = await self._load()
        yield WatchUpdate(revision, rows, is_snapshot=True)
        call = self._watch.Watch()
        try:
            create = rpc.WatchCreateRequest(
                key=_PREFIX, range_end=_END, start_revision=revision + 1, fragment=True
            )
            await call.write(rpc.WatchRequest(create_request=create))
            async for response in call:
                if response.canceled:
                    why = response.cancel_reason or f"compacted at {response.compact_revision}"
                    raise Unavailable(f"etcd ended the watch: {why}")
                if response.events:
                    yield _watch_update(response)
        except grpc.aio.AioRpcError as error:
            raise _unavailable(error) from None
        finally:
            call.cancel()
        raise Unavailable("etcd ended the watch")

    async def _load(self) -> tuple[int, dict[str, bytes | None]]:
        rows: dict[str, bytes | None] = {}
        request = rpc.RangeRequest(key=_PREFIX, range_end=_END, limit=_PAGE_ROWS, serializable=True)
        while True:
            page = await _ask(self._kv.Range, request, _READ_SECONDS)
            rows.update((_name(kv.key), kv.value) for kv in page.kvs)
            # Read all pages at the revision of the first.
            request.revision = request.revision or page.header.revision
            if not page.more:
                return request.revision, rows
            request.key = page.kvs[-1].key + b"\0"

    async def leader_row(self) -> tuple[bytes, int]:
        """The leader row by a linearizable read, and its revision; (b"", 0) if there is none."""
        answer = await _ask(self._kv.Range, rpc.RangeRequest(key=_LEADER), _READ_SECONDS)
        if not answer.kvs:
            return b"", 0
        return answer.kvs[0].value, answer.kvs[0].mod_revision

    async def claim(self, row: bytes, expected_revision: int) -> int:
        """Replace the leader row if it has the expected revision; return the new revision."""
        return await self._transact(expected_revision, [_put(LEADER_KEY, row)])

    async def commit(self, claim_revision: int, changes: Changes) -> None:
        """Write all changes in one transaction if the leader row still has the claim's revision."""
        await self._transact(
            claim_revision,
            [_delete(k) if value is None else _put(k, value) for k, value in changes.items()],
        )

    async def _transact(self, leader_revision: int, operations: list[rpc.RequestOp]) -> int:
        comparison = rpc.Compare(target=rpc.Compare.MOD, key=_LEADER, mod_revision=leader_revision)
        request = rpc.TxnRequest(compare=[comparison], success=operations)
        try:
            answer = await self._kv.Txn(request, timeout=_WRITE_SECONDS)
        except grpc.aio.AioRpcError as error:
            if error.code() in _REJECTED_CODES:
                raise BigFleetError(f"etcd rejected a write: {error.details()}") from None
            raise OutcomeUnknown(f"etcd did not confirm a write: {error.details()}") from None
        if not answer.succeeded:
            raise LeadershipLost("another replica has become leader")
        revision: int = answer.header.revision
        return revision

    async def members(self) -> Sequence[Member]:
        """All replicas, as this member knows them."""
        answer = await _ask(
            self._cluster.MemberList, rpc.MemberListRequest(linearizable=False), _READ_SECONDS
        )
        return [_member(each) for each in answer.members]

    async def add_learner(self, peer_url: str) -> None:
        """Add a replica as a learner, to be promoted once it has caught up."""
        request = rpc.MemberAddRequest(peerURLs=[peer_url], isLearner=True)
        await _change(self._cluster.MemberAdd, request)

    async def promote(self, member_id: int) -> bool:
        """Make a learner a voter; False while it has not caught up."""
        try:
            await _change(self._cluster.MemberPromote, rpc.MemberPromoteRequest(ID=member_id))
        except BigFleetError:
            return False
        return True

    async def remove(self, member_id: int) -> None:
        """Remove a replica; BigFleetError if the rest would lose quorum."""
        await _change(self._cluster.MemberRemove, rpc.MemberRemoveRequest(ID=member_id))

    async def move_leader(self, member_id: int) -> None:
        """Transfer leadership to another member; only the leader can."""
        await _change(self._maintenance.MoveLeader, rpc.MoveLeaderRequest(targetID=member_id))

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close(None)


async def _ask(method: Any, request: Any, seconds: float) -> Any:
    try:
        return await method(request, timeout=seconds)
    except grpc.aio.AioRpcError as error:
        raise _unavailable(error) from None


async def _change(method: Any, request: Any) -> None:
    try:
        await method(request, timeout=_WRITE_SECONDS)
    except grpc.aio.AioRpcError as error:
        if error.code() in _REJECTED_CODES:
            raise BigFleetError(f"etcd rejected a membership change: {error.details()}") from None
        raise _unavailable(error) from None


def _unavailable(error: grpc.aio.AioRpcError) -> Unavailable:
    return Unavailable(f"etcd does not answer: {error.details() or error.code().name}")


def _member(member: rpc.Member) -> Member:
    """A member has client URLs once it has started."""
    peer_url, started = "".join(member.peerURLs[:1]), bool(member.clientURLs)
    return Member(member.ID, member.name, peer_url, member.isLearner, started)


def _watch_update(response: rpc.WatchResponse) -> WatchUpdate:
    changes: dict[str, bytes | None] = {}
    for event in response.events:
        gone = event.type == rpc.Event.DELETE
        changes[_name(event.kv.key)] = None if gone else event.kv.value
    # Not the header's revision, which may cover events still to come.
    return WatchUpdate(max(event.kv.mod_revision for event in response.events), changes)


def _name(key: bytes) -> str:
    return key.removeprefix(_PREFIX).decode()


def _put(key: str, value: bytes) -> rpc.RequestOp:
    return rpc.RequestOp(request_put=rpc.PutRequest(key=_PREFIX + key.encode(), value=value))


def _delete(key: str) -> rpc.RequestOp:
    request = rpc.DeleteRangeRequest(key=_PREFIX + key.encode())
    return rpc.RequestOp(request_delete_range=request)
