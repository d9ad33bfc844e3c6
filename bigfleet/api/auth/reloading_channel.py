"""A channel whose new calls use the newest certificate; gRPC's own keeps the first for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc
import grpc.aio

from bigfleet.api.auth.identity import IdentityFiles, IdentityReloader

# Longer than any call but a session, which has its own channel.
_DRAIN_TIMEOUT_SECONDS = 300.0


class ReloadingChannel(grpc.aio.Channel):
    """Wraps one channel, replaced at the first call after `reloader` changed; calls in progress
    finish on the old one.
    """

    def __init__(
        self, reloader: IdentityReloader, connect: Callable[[IdentityFiles], grpc.aio.Channel]
    ) -> None:
        self._reloader, self._connect = reloader, connect
        self._pem = reloader.current()
        self._channel = connect(self._pem)
        self._retiring: dict[asyncio.Task[None], grpc.aio.Channel] = {}

    async def __aenter__(self) -> ReloadingChannel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        """Close all channels, replaced ones at once."""
        for task, old in list(self._retiring.items()):
            task.cancel()
            await old.close(None)
        await self._channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """The state of the channel that the next call would use."""
        return self._current_channel().get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Wait until that channel's state changes."""
        await self._current_channel().wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Wait until that channel is ready."""
        await self._current_channel().channel_ready()

    def unary_unary(self, *method: Any, **more: Any) -> Any:
        """See grpc.aio.Channel."""
        return self._calls("unary_unary", method, more)

    def unary_stream(self, *method: Any, **more: Any) -> Any:
        """See grpc.aio.Channel."""
        return self._calls("unary_stream", method, more)

    def stream_unary(self, *method: Any, **more: Any) -> Any:
        """See grpc.aio.Channel."""
        return self._calls("stream_unary", method, more)

    def stream_stream(self, *method: Any, **more: Any) -> Any:
        """See grpc.aio.Channel."""
        return self._calls("stream_stream", method, more)

    def _calls(self, kind: str, method: Sequence[Any], more: Mapping[str, Any]) -> Any:
        """A stub keeps this for one method, so it looks up the newest channel at each call."""

        def call(*request: Any, **options: Any) -> Any:
            return getattr(self._current_channel(), kind)(*method, **more)(*request, **options)

        return call

    def _current_channel(self) -> grpc.aio.Channel:
        pem = self._reloader.current()
        if pem is not self._pem:
            task = asyncio.create_task(self._channel.close(_DRAIN_TIMEOUT_SECONDS))
            self._retiring[task] = self._channel
            task.add_done_callback(self._retiring.pop)
            self._pem, self._channel = pem, self._connect(pem)
        return self._channel
