"""Why a peer does not let us in: gRPC says "Socket closed", and one handshake by hand says more.

A server of TLS 1.3 looks at its client's certificate last, and gRPC does not pass on what it says
about it. So, once a call has failed in a way that may be TLS's, the question is asked again
without gRPC.
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
# What gRPC's details hold where TLS, or its absence, can be the reason.
_MAYBE_TLS = ("Socket closed", "handshake", "Handshake", "Hostname", "reset", "Broken pipe", "EOF")
_EXPIRED_CODE = 10
_NAME_MISMATCH_CODE = 62
_OTHER_AUTHORITY = "was refused: another authority signed it than those in the {role}'s ca.crt"
# The alerts by which a server says what it has against our certificate.
_ALERTS: Mapping[str, str] = {
    "TLSV1_ALERT_UNKNOWN_CA": _OTHER_AUTHORITY,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "was refused as expired; is the {role}'s clock right?",
    "SSLV3_ALERT_BAD_CERTIFICATE": _OTHER_AUTHORITY,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _OTHER_AUTHORITY,
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "did not reach the {role}",
}


async def explain_failure(
    error: grpc.aio.AioRpcError, address: str, identity: Identity | None, role: str
) -> str:
    """What the failed call means, for people: the reason that TLS has, where it has one, and what
    to do; otherwise gRPC's own words. Takes at most some seconds, and only if TLS may be why.
    """
    details = error.details() or "no reason given"
    maybe_tls = error.code() is grpc.StatusCode.UNAVAILABLE and any(
        w in details for w in _MAYBE_TLS
    )
    reason = await asyncio.to_thread(_reason, address, identity, role) if maybe_tls else ""
    return reason or f"{error.code().name}: {details}"


def _reason(address: str, identity: Identity | None, role: str) -> str:
    """Why a handshake with `address` fails; "" when it does not, or not because of TLS."""
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
        f"{address} speaks TLS only, and this side was told --insecure: give it --identity DIR "
        "with a certificate of that fleet"
    )


def _reason_for_identity(address: str, identity: Identity, role: str) -> str:
    pem, path = identity.load(), identity.directory / CERTIFICATE
    if pem.expires <= datetime.now(UTC):
        return (
            f"our own certificate {path} ({pem.name}) expired at {pem.expires.isoformat()}, so "
            f"{address} refuses it: put a new one there, it is read without a restart"
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
        f"most likely the {role}'s ca.crt does not hold the authority that signed it; its log says"
    )


def _peer_rejected(
    error: ssl.SSLCertVerificationError, address: str, identity: Identity, role: str
) -> str:
    """What we have against the certificate that the peer shows."""
    if error.verify_code == _NAME_MISMATCH_CODE:
        return (
            f"who answers at {address} is no {role}: its certificate is not valid for "
            f"{role}.bigfleet.internal. Is it the right port, and does it run as itself?"
        )
    if error.verify_code == _EXPIRED_CODE:
        return f"the certificate of the {role} at {address} has expired: put a new one there"
    return (
        f"the certificate of the {role} at {address} was signed by no authority in "
        f"{identity.directory / 'ca.crt'} ({error.verify_message}): both sides need the same one"
    )


def _rejected_by_peer(
    error: ssl.SSLError, address: str, pem: IdentityFiles, identity: Identity, role: str
) -> str:
    """What the peer has against us, as far as its alert says."""
    if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"):
        return (
            f"{address} speaks plaintext, and this side wants TLS: start the {role} there with "
            "--identity DIR, or, if plaintext is meant, this side with --insecure"
        )
    said = _ALERTS.get(error.reason or "", "was not accepted ({reason})")
    path = identity.directory / CERTIFICATE
    return f"{address}: our certificate {path} ({pem.name}) " + said.format(
        role=role, reason=error.reason
    )


def _handshake(address: str, context: ssl.SSLContext, name: str) -> bytes:
    """The first bytes that the peer sends over TLS, b"" when it hangs up instead."""
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=name or None) as secured,
    ):
        try:
            return secured.recv(1)
        except (ssl.SSLEOFError, ConnectionResetError):
            return b""
