"""The operator's session with its shard, dialed by the operator and redialed for ever."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol

import grpc.aio

from bigfleet.api import transport
from bigfleet.api.auth.identity import Identity
from bigfleet.api.auth.tls_diagnosis import explain_failure
from bigfleet.api.v1alpha1.capacity_pb2 import ClusterCapacityNeeds
from bigfleet.api.v1alpha1.shard_pb2 import (
    Acknowledgement,
    Hello,
    OperatorMessage,
    Redirect,
    RollUpTooLarge,
    ShardMessage,
)
from bigfleet.api.v1alpha1.shard_pb2_grpc import ShardStub
from bigfleet.controllers.operator.shard_addresses import ShardAddressList
from bigfleet.model.errors import Unavailable
from bigfleet.model.retry_delays import RetryDelays
from bigfleet.observe import metrics
from bigfleet.tasks import run_until_first_completes

_LOG = logging.getLogger(__name__)
PROTOCOL_VERSION = "v1alpha1"
_ROLE = "shard"
_RETRIES = RetryDelays(0.5, 30.0)
_ANSWER_SECONDS = 30.0


class Session:
    """One open stream. Messages sent after its end are dropped; the shard asks again."""

    def __init__(self) -> None:
        self._outbox: asyncio.Queue[OperatorMessage] = asyncio.Queue()
        self._answers: dict[str, asyncio.Future[Acknowledgement]] = {}

    def send(self, message: OperatorMessage) -> None:
        """Queue `message`."""
        self._outbox.put_nowait(message)

    async def deliver(self, rollup: ClusterCapacityNeeds) -> Acknowledgement:
        """Send `rollup` and wait for its acknowledgement; Unavailable at the timeout."""
        echo = str(rollup.timestamp_unix_nanos)
        return await self._ask(OperatorMessage(rollup=rollup), echo)

    async def send_hello(self, cluster_id: str) -> Acknowledgement:
        """Send the first message and wait for its acknowledgement; Unavailable at the timeout."""
        hello = Hello(cluster_id=cluster_id, protocol_version=PROTOCOL_VERSION)
        return await self._ask(OperatorMessage(hello=hello), cluster_id)

    def report_too_large(self, too_large: RollUpTooLarge) -> None:
        """Report a roll-up that is too large to send, without waiting for an acknowledgement."""
        self.send(OperatorMessage(rollup_too_large=too_large))

    def answer(self, acknowledgement: Acknowledgement) -> None:
        """Complete the call that waits for this acknowledgement."""
        waiting = self._answers.get(acknowledgement.echo)
        if waiting is None or waiting.done():
            _LOG.info("unexpected acknowledgement of %s", acknowledgement.echo)
        else:
            waiting.set_result(acknowledgement)

    async def messages(self) -> AsyncIterator[OperatorMessage]:
        """The queued messages, for ever."""
        while True:
            yield await self._outbox.get()

    async def _ask(self, message: OperatorMessage, echo: str) -> Acknowledgement:
        answer: asyncio.Future[Acknowledgement] = asyncio.get_running_loop().create_future()
        self._answers[echo] = answer
        self.send(message)
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await answer
        except TimeoutError:
            what = message.WhichOneof("message")
            raise Unavailable(f"no answer to our {what} within {_ANSWER_SECONDS:g} s") from None
        finally:
            del self._answers[echo]


class SessionHandler(Protocol):
    """Handles the messages of a session, and sends roll-ups while it is open."""

    def handle(self, message: ShardMessage, session: Session) -> None:
        """Handle any message but an acknowledgement; must not block."""
        ...

    async def send_rollups(self, session: Session) -> None: ...


class _Redirected(Exception):
    def __init__(self, to: Redirect) -> None:
        super().__init__(f"shard {to.shard_id} at {to.address} serves this cluster")
        self.address = to.address


class Dialer:
    """Keeps one session open with the shard that serves the cluster.

    Any of `addresses` may redirect to another shard, which is dialed at once. After a failure the
    next address is tried, including the last one that served. `random` returns numbers in [0, 1),
    to spread reconnections.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        cluster_id: str,
        handler: SessionHandler,
        random: Callable[[], float],
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        identity: Identity | None = None,
    ) -> None:
        self._shard_addresses = ShardAddressList(addresses)
        self._cluster_id, self._handler = cluster_id, handler
        self._identity = identity
        self._random, self._sleep = random, sleep
        self._not_ready_reason = "not dialed yet"

    def not_ready(self) -> str:
        """Why there is no session; "" while there is one."""
        return (
            self._not_ready_reason
            and f"no session with the shard at {self._shard_addresses.address}: "
            f"{self._not_ready_reason}"
        )

    async def run(self) -> None:
        """Dial, serve and redial until cancelled."""
        while True:
            try:
                await self._follow()
                self._not_ready_reason = "the shard ended it"
            except grpc.aio.AioRpcError as error:
                address = self._shard_addresses.address
                self._not_ready_reason = await explain_failure(
                    error, address, self._identity, _ROLE
                )
            except (Unavailable, _Redirected) as error:
                self._not_ready_reason = str(error)
            problem = self.not_ready()
            delay = backoff_seconds(self._shard_addresses.failed(), self._random())
            _LOG.warning("%s; redialing in %.1f s", problem, delay)
            await self._sleep(delay)
            metrics.operator_reconnects.inc()

    async def _follow(self) -> None:
        """Run one session, following a redirect.

        A second redirect in a row is a failure: shards that disagree must not be dialed in a loop.
        """
        try:
            await self._one_session()
        except _Redirected as redirected:
            metrics.operator_redirects.inc()
            _LOG.info("%s", redirected)
            self._shard_addresses.redirected(redirected.address)
            await self._one_session()

    async def _one_session(self) -> None:
        # A new channel for each session: an old one would add its own backoff to ours.
        async with transport.channel(
            self._shard_addresses.address, self._identity, _ROLE
        ) as channel:
            session = Session()
            call = ShardStub(channel).Session(session.messages())
            try:
                await run_until_first_completes(
                    self._read(call, session), self._run_session(session)
                )
            finally:
                call.cancel()

    async def _run_session(self, session: Session) -> None:
        await session.send_hello(self._cluster_id)
        self._not_ready_reason = ""
        self._shard_addresses.served()
        _LOG.info("session with the shard at %s is open", self._shard_addresses.address)
        await self._handler.send_rollups(session)

    async def _read(
        self, call: grpc.aio.StreamStreamCall[OperatorMessage, ShardMessage], session: Session
    ) -> None:
        async for message in call:
            if message.HasField("ack"):
                session.answer(message.ack)
            elif message.HasField("redirect"):
                raise _Redirected(message.redirect)
            else:
                self._handler.handle(message, session)


def backoff_seconds(failures: int, random: float) -> float:
    """0.5 s doubling to 30 s, with a jitter of up to half."""
    return _RETRIES.after(failures + 1) * (0.5 + random / 2)
