"""How every gRPC server and channel of BigFleet is opened: one message ceiling, one keepalive.

A roll-up that outgrows gRPC's default of 4 MiB would otherwise end its session, be sent again and
end it again, silently. Above the ceiling the send fails with RESOURCE_EXHAUSTED, which both sides
see and report.
"""

from __future__ import annotations

import grpc.aio

MESSAGE_CEILING_BYTES = 256 * 2**20
# A roll-up travels in an envelope.
MOST_ROLLUP_BYTES = MESSAGE_CEILING_BYTES - 1024
KEEPALIVE_SECONDS = 20
KEEPALIVE_TIMEOUT_SECONDS = 10

_COMMON: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MESSAGE_CEILING_BYTES),
    ("grpc.max_send_message_length", MESSAGE_CEILING_BYTES),
    ("grpc.keepalive_time_ms", KEEPALIVE_SECONDS * 1000),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_SECONDS * 1000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Idle sessions are normal here: a peer's pings are never held against it.
    ("grpc.http2.max_pings_without_data", 0),
)
_SERVER: tuple[tuple[str, int], ...] = (
    *_COMMON,
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_SECONDS * 500),
)
_CHANNEL: tuple[tuple[str, int], ...] = (
    *_COMMON,
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 5000),
)


def server() -> grpc.aio.Server:
    """A server without ports or services yet."""
    return grpc.aio.server(options=_SERVER)


def channel(address: str) -> grpc.aio.Channel:
    """A channel to `address` (host:port); it connects by itself when first used."""
    return grpc.aio.insecure_channel(address, options=_CHANNEL)
