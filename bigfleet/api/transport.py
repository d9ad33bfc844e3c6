"""gRPC servers and channels with BigFleet's message size limit, keepalive and mutual TLS.

With gRPC's default limit of 4 MiB a larger roll-up would end its session silently, again and again.
Above our limit the send fails with RESOURCE_EXHAUSTED, which both sides report.
"""

from __future__ import annotations

import grpc
import grpc.aio

from bigfleet.api.auth.authorization import (
    AUTHORIZATION_TABLE,
    AuthorizationInterceptor,
    AuthorizationTable,
)
from bigfleet.api.auth.identity import Identity, IdentityFiles, IdentityReloader
from bigfleet.api.auth.reloading_channel import ReloadingChannel
from bigfleet.model.errors import Unavailable
from bigfleet.observe.ports import require_free_port

# The DNS name that a server's certificate must have, so that a client can verify its role.
SERVER_NAME = "{role}.bigfleet.internal"
MAX_MESSAGE_BYTES = 256 * 2**20
# Leaves space for the message that wraps a roll-up.
MAX_ROLLUP_BYTES = MAX_MESSAGE_BYTES - 1024
KEEPALIVE_SECONDS = 20
KEEPALIVE_TIMEOUT_SECONDS = 10

_COMMON: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", KEEPALIVE_SECONDS * 1000),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_SECONDS * 1000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Sessions may be idle for long: do not limit pings.
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


def server(
    identity: Identity | None = None, rules: AuthorizationTable | None = None
) -> grpc.aio.Server:
    """A server without ports or services yet.

    With an identity every call is authorized by `rules`, by default `AUTHORIZATION_TABLE`; without
    one callers are anonymous, and every call is allowed.
    """
    interceptors = (
        [AuthorizationInterceptor(AUTHORIZATION_TABLE if rules is None else rules)]
        if identity
        else []
    )
    return grpc.aio.server(options=_SERVER, interceptors=interceptors)


def listen(server: grpc.aio.Server, address: str, identity: Identity | None) -> int:
    """Make `server` listen on `address` (host:port); return the port, chosen by the system for 0.

    With an identity: mutual TLS; each new connection uses the current files. Without: plaintext.
    InvalidInput when the identity's files are invalid, Unavailable when the address is in use.
    """
    require_free_port("listen", *_host_and_port(address))
    try:
        if identity is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, _server_credentials(IdentityReloader(identity)))
    except RuntimeError:
        text = f"cannot listen on {address}: in use, or not an address of this machine"
        raise Unavailable(text) from None


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def channel(address: str, identity: Identity | None = None, role: str = "") -> grpc.aio.Channel:
    """A channel to `address` (host:port); it connects on first use.

    With an identity the peer must prove to be a `role`: "shard", "coordinator" or "provider".
    InvalidInput when the identity's files are invalid.
    """
    if identity is None:
        return grpc.aio.insecure_channel(address, options=_CHANNEL)
    name = ("grpc.ssl_target_name_override", SERVER_NAME.format(role=role))
    options = (*_CHANNEL, name)

    def connect(pem: IdentityFiles) -> grpc.aio.Channel:
        credentials = grpc.ssl_channel_credentials(pem.authority, pem.key, pem.certificate)
        return grpc.aio.secure_channel(address, credentials, options=options)

    return ReloadingChannel(IdentityReloader(identity), connect)


def _server_credentials(reloader: IdentityReloader) -> grpc.ServerCredentials:
    served = reloader.current()

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        """Called for each new connection; None keeps the current configuration."""
        nonlocal served
        newest = reloader.current()
        if newest is served:
            return None
        served = newest
        return _configuration(newest)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(served),
        renewed,  # type: ignore[arg-type]  # the stubs lack None, which means no change
        require_client_authentication=True,
    )


def _configuration(pem: IdentityFiles) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(pem.key, pem.certificate)], root_certificates=pem.authority
    )
