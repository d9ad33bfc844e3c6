"""The gRPC face of the sessions: streams in and out, errors as status codes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Container
from contextlib import aclosing, suppress
from typing import Any

import grpc
import grpc.aio

from bigfleet.api.v1alpha1 import shard_pb2
from bigfleet.api.v1alpha1.shard_pb2_grpc import ShardServicer
from bigfleet.model.errors import InvalidInput, Unavailable
from bigfleet.observe import metrics
from bigfleet.services.shard.sessions import session as session_module
from bigfleet.services.shard.sessions.registry import Sessions, check
from bigfleet.services.shard.sessions.router import SessionRouter
from bigfleet.tasks import cancel_and_wait

Context = grpc.aio.ServicerContext[Any, Any]
_Requests = AsyncIterator[shard_pb2.OperatorMessage]

_log = logging.getLogger(__name__)
# Who connects and says nothing is no operator, and is not kept.
HELLO_TIMEOUT_SECONDS = 30.0
# Who takes nothing that is told to it for so long reads nothing. Its session ends: an operator that
# lives dials again and is told everything, and one that does not counts as away.
READ_TIMEOUT_SECONDS = 120.0
_POLLS = 4
# After each message its session is left alone for so many times as long as it took. So nobody who
# says roll-ups without end has more than a fifth of the shard; meanwhile its stream is full.
_PAUSE_FACTOR = 4


class SessionServicer(ShardServicer):
    """`Shard` over Sessions. A stream ends with INVALID_ARGUMENT when its operator broke the
    protocol, with DEADLINE_EXCEEDED when it never greeted, with ABORTED when a newer session
    replaced it, with UNAVAILABLE when nobody can tell whose its cluster is or it is being removed,
    with OK after a redirect and when the shard stops. Nobody waits for one that is not read: its
    session ends, and DEADLINE_EXCEEDED comes after all that had been written.
    """

    def __init__(
        self,
        sessions: Sessions,
        router: SessionRouter | None = None,
        removed: Container[str] = (),
    ) -> None:
        self._sessions, self._router, self._removed = sessions, router, removed

    async def Session(
        self, request_iterator: _Requests, context: Context
    ) -> AsyncIterator[shard_pb2.ShardMessage]:
        """One operator's session, from its Hello to the end of either side."""
        hello = await self._hello(request_iterator, context)
        if redirect := await self._redirect(hello.cluster_id, context):
            metrics.shard_redirects.inc()
            yield shard_pb2.ShardMessage(redirect=redirect)
            return
        session = self._sessions.open(hello)
        reading = asyncio.create_task(self._read(session, request_iterator))
        watching = asyncio.create_task(self._abort_when_not_reading(session, context))
        try:
            async with aclosing(session.outbox.drain()) as news:
                async for message in news:
                    yield message
        finally:
            if not session.terminated:
                self._sessions.close(session)  # at once: who waits may be cancelled a second time
                watching.cancel()
            await cancel_and_wait(reading)
        if session.ending is not None and not session.terminated:
            replaced = session.ending.replaced
            code = grpc.StatusCode.ABORTED if replaced else grpc.StatusCode.INVALID_ARGUMENT
            await context.abort(code, session.ending.reason)

    async def _hello(self, requests: _Requests, context: Context) -> shard_pb2.Hello:
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_SECONDS):
                first = await anext(requests, shard_pb2.OperatorMessage())
            if first.WhichOneof("message") != "hello":
                raise InvalidInput(
                    "session", first.WhichOneof("message") or "nothing", "is no Hello; begin so"
                )
            check(first.hello)
        except TimeoutError:
            why = f"session: no Hello came within {HELLO_TIMEOUT_SECONDS:.0f} s; begin with it"
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, why)
        except InvalidInput as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return first.hello

    async def _redirect(self, cluster: str, context: Context) -> shard_pb2.Redirect | None:
        if cluster in self._removed:
            why = "is being removed from the fleet; it is served as a new one once that has ended"
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"cluster {cluster} {why}")
        if self._router is None:
            return None
        try:
            return await self._router.redirect_for(cluster)
        except Unavailable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))

    async def _abort_when_not_reading(
        self, session: session_module.Session, context: Context
    ) -> None:
        """End the session once its operator takes nothing; what waited for it is forgotten."""
        while session.outbox.stuck_seconds < READ_TIMEOUT_SECONDS:  # noqa: ASYNC110  that is no event
            await asyncio.sleep(READ_TIMEOUT_SECONDS / _POLLS)
        why = f"its operator has read nothing for {READ_TIMEOUT_SECONDS:.0f} s"
        fields = {"cluster": session.cluster, "waiting": len(session.outbox)}
        _log.warning(f"session broken off: {why}", extra=fields)
        metrics.shard_stalled_sessions.inc()
        session.terminate()
        self._sessions.close(session)
        with suppress(grpc.aio.AbortError, grpc.aio.InternalError):
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"session: {why}; dial again")

    async def _read(self, session: session_module.Session, requests: _Requests) -> None:
        """Until the operator is done; then no question to it can be answered any more."""
        ending = None
        try:
            async for message in requests:
                began_seconds = time.monotonic()
                self._sessions.receive(session, message)
                await session.outbox.wait_for_space()
                await asyncio.sleep(_PAUSE_FACTOR * (time.monotonic() - began_seconds))
        except InvalidInput as error:
            ending = session_module.Ending(False, str(error))
        except grpc.aio.AbortError:
            _log.debug("session broken off", extra={"cluster": session.cluster})
        except grpc.RpcError as error:
            _log.info("session broke", extra={"cluster": session.cluster, "error": str(error)})
        except Exception:  # noqa: BLE001  a bug in one session must not pass unseen or end others
            _log.exception("session failed", extra={"cluster": session.cluster})
        finally:
            session.end(ending)
