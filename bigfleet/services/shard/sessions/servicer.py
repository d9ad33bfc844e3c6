"""gRPC service for sessions: one bidirectional stream per operator."""

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

_LOG = logging.getLogger(__name__)
# A client that sends no Hello is disconnected.
HELLO_TIMEOUT_SECONDS = 30.0
# The session of an operator that reads nothing for this long ends: a live one reconnects and gets a
# replay, a dead one counts as disconnected.
READ_TIMEOUT_SECONDS = 120.0
_POLLS = 4
# After each message, its session pauses for this multiple of the handling time. So an operator that
# sends roll-ups without end uses a fifth of the shard at most, and gets back-pressure meanwhile.
_PAUSE_FACTOR = 4


class SessionServicer(ShardServicer):
    """`Shard` over Sessions. A stream ends with INVALID_ARGUMENT when the operator violates the
    protocol, DEADLINE_EXCEEDED when it sends no Hello, ABORTED when a newer session replaces it,
    UNAVAILABLE when the cluster's shard is unknown or the cluster is being removed, OK after a
    redirect and when the shard stops. The session of an operator that does not read ends at once,
    and its stream with DEADLINE_EXCEEDED after all that was written.
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
            async with aclosing(session.outbox.drain()) as messages:
                async for message in messages:
                    yield message
        finally:
            if not session.terminated:
                self._sessions.close(session)  # before awaiting: this task may be cancelled again
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
                    "session",
                    first.WhichOneof("message") or "nothing",
                    "received; expected Hello as the first message",
                )
            check(first.hello)
        except TimeoutError:
            why = f"session: no Hello received within {HELLO_TIMEOUT_SECONDS:.0f} s"
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, why)
        except InvalidInput as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return first.hello

    async def _redirect(self, cluster: str, context: Context) -> shard_pb2.Redirect | None:
        if cluster in self._removed:
            why = "is being removed from the fleet; it can connect as a new cluster afterwards"
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
        """End the session of an operator that does not read, and drop its queued messages."""
        while session.outbox.stuck_seconds < READ_TIMEOUT_SECONDS:  # noqa: ASYNC110  not an event
            await asyncio.sleep(READ_TIMEOUT_SECONDS / _POLLS)
        why = f"its operator has read nothing for {READ_TIMEOUT_SECONDS:.0f} s"
        fields = {"cluster": session.cluster, "waiting": len(session.outbox)}
        _LOG.warning(f"session terminated: {why}", extra=fields)
        metrics.shard_stalled_sessions.inc()
        session.terminate()
        self._sessions.close(session)
        with suppress(grpc.aio.AbortError, grpc.aio.InternalError):
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"session: {why}; reconnect")

    async def _read(self, session: session_module.Session, requests: _Requests) -> None:
        """Handle the operator's messages until it closes its side; then end the session."""
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
            _LOG.debug("session terminated", extra={"cluster": session.cluster})
        except grpc.RpcError as error:
            _LOG.info("session lost", extra={"cluster": session.cluster, "error": str(error)})
        except Exception:  # noqa: BLE001  a defect in one session is logged and affects no other
            _LOG.exception("session failed", extra={"cluster": session.cluster})
        finally:
            session.end(ending)
