"""Why TLS to a peer fails: where gRPC only reports "Socket closed", a handshake by hand says more.

A TLS 1.3 server verifies its client's certificate last, and gRPC drops the alert it sends. So when
a call failed in a way that may be due to TLS, the handshake is repeated without gRPC.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime

import grpc
import grpc.aio

from bigfleet.api.auth.identity import CERTIFICATE, Identity, IdentityFiles
from bigfleet.model.errors import InvalidInput

_PROBE_SECONDS = 2.0
# gRPC's details contain one of these where TLS, or its absence, may be the reason.
_MAYBE_TLS = ("Socket closed", "handshake", "Handshake", "Hostname", "reset", "Broken pipe", "EOF")
_EXPIRED_CODE = 10
_NAME_MISMATCH_CODE = 62
_OTHER_AUTHORITY = "was rejected: its authority is not in the {role}'s ca.crt"
# What a server's alerts say about our certificate.
_ALERTS: Mapping[str, str] = {
    "TLSV1_ALERT_UNKNOWN_CA": _OTHER_AUTHORITY,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "was rejected as expired; check the {role}'s clock",
    "SSLV3_ALERT_BAD_CERTIFICATE": _OTHER_AUTHORITY,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _OTHER_AUTHORITY,
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "did not reach the {role}",
}


async def explain_failure(
    error: grpc.aio.AioRpcError, address: str, identity: Identity | None, role: str
) -> str:
    """Explain a failed call: TLS's reason and what to do about it, else gRPC's details. Takes up to
    some seconds when TLS may be the reason.
    """
    details = error.details() or "no reason given"
    maybe_tls = error.code() is grpc.StatusCode.UNAVAILABLE and any(
        w in details for w in _MAYBE_TLS
    )
    reason = await asyncio.to_thread(_reason, address, identity, role) if maybe_tls else ""
    return reason or f"{error.code().name}: {details}"


def _reason(address: str, identity: Identity | None, role: str) -> str:
    """Why a handshake with `address` fails; "" when it succeeds, or fails for other reasons."""
    try:
        if identity is None:
            return _reason_for_plaintext(address)
        return _reason_for_identity(address, identity, role)
    except InvalidInput as error:
        return str(error)
    except OSError:
        return ""


def _reason_for_plaintext(address: str) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        _handshake(address, context, "")
    except ssl.SSLError as error:
        if "ALERT" not in (error.reason or ""):
            return ""
    return (
        f"{address} requires TLS, and this side runs with --insecure: use --identity DIR with a "
        "certificate of that fleet"
    )


def _reason_for_identity(address: str, identity: Identity, role: str) -> str:
    pem, path = identity.load(), identity.directory / CERTIFICATE
    if pem.expires <= datetime.now(UTC):
        return (
            f"our own certificate {path} ({pem.name}) expired at {pem.expires.isoformat()}, so "
            f"{address} rejects it: replace it, no restart is needed"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["h2"])
    context.load_verify_locations(cadata=pem.authority.decode())
    context.load_cert_chain(path, identity.directory / "tls.key")
    try:
        answer = _handshake(address, context, f"{role}.bigfleet.internal")
    except ssl.SSLCertVerificationError as error:
        return _peer_rejected(error, address, identity, role)
    except ssl.SSLError as error:
        return _rejected_by_peer(error, address, pem, identity, role)
    if answer:
        return ""
    return (
        f"{address} closed the connection once it had seen our certificate {path} ({pem.name}): "
        f"most likely its authority is not in the {role}'s ca.crt; see the {role}'s log"
    )


def _peer_rejected(
    error: ssl.SSLCertVerificationError, address: str, identity: Identity, role: str
) -> str:
    """Why the peer's certificate is invalid."""
    if error.verify_code == _NAME_MISMATCH_CODE:
        return (
            f"the server at {address} is not a {role}: its certificate is not valid for "
            f"{role}.bigfleet.internal; check the port, and the server's identity"
        )
    if error.verify_code == _EXPIRED_CODE:
        return f"the certificate of the {role} at {address} has expired: replace it"
    return (
        f"the certificate of the {role} at {address} was not signed by an authority in "
        f"{identity.directory / 'ca.crt'} ({error.verify_message}); both sides need the same one"
    )


def _rejected_by_peer(
    error: ssl.SSLError, address: str, pem: IdentityFiles, identity: Identity, role: str
) -> str:
    """Why the peer rejects our certificate, as far as its alert says."""
    if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"):
        return (
            f"{address} speaks plaintext, and this side requires TLS: start the {role} with "
            "--identity DIR, or, if plaintext is intended, this side with --insecure"
        )
    meaning = _ALERTS.get(error.reason or "", "was rejected ({reason})")
    path = identity.directory / CERTIFICATE
    return f"{address}: our certificate {path} ({pem.name}) " + meaning.format(
        role=role, reason=error.reason
    )


def _handshake(address: str, context: ssl.SSLContext, name: str) -> bytes:
    """The first bytes that the peer sends over TLS; b"" when it closes the connection."""
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=name or None) as secured,
    ):
        try:
            return secured.recv(1)
        except (ssl.SSLEOFError, ConnectionResetError):
            return b""
