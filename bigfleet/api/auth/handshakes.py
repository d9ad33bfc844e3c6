"""Turns gRPC's log lines about failed TLS handshakes into clear messages and a metric. gRPC does
not log the peer, so neither do we.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
_FAILED = re.compile(r"Handshake failed with error \w+: (?P<why>.*)")
_NAME_MISMATCH = re.compile(r"No match found for server name: (?P<name>\S+)")
_REFUSED_BY_PEER = (
    "the peer rejected our certificate: it trusts another authority, expects another role, or our "
    "certificate has expired; see its own error"
)
# OpenSSL's text, the metric's label, and the meaning; the first match counts.
_MEANINGS: Sequence[tuple[str, str, str]] = (
    ("certificate has expired", "expired", "the peer's certificate has expired"),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "authority",
        "the peer's certificate was not signed by an authority in our ca.crt",
    ),
    ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "no-certificate", "the peer sent no certificate"),
    (
        "WRONG_VERSION_NUMBER",
        "plaintext",
        "the peer speaks plaintext; start it with --identity DIR",
    ),
    ("HTTP_REQUEST", "plaintext", "the peer speaks plaintext; start it with --identity DIR"),
    ("NO_SHARED_CIPHER", "old-tls", "the peer does not speak TLS 1.3"),
    ("_ALERT_", "refused-by-peer", _REFUSED_BY_PEER),
    # How an alert reads that OpenSSL's clients send unencrypted.
    ("BAD_PACKET_LENGTH", "refused-by-peer", _REFUSED_BY_PEER),
)


def record_handshake_failure(line: str) -> bool:
    """Log and count the failed handshake in `line`; False when it is about something else."""
    found = _FAILED.search(line)
    if found is None:
        return _log_wrong_name(line)
    why = found["why"].strip()
    reason, meaning = next(
        ((reason, meaning) for text, reason, meaning in _MEANINGS if text in why),
        ("other", "see the TLS error"),
    )
    metrics.handshakes_failed.labels(reason).inc()
    _LOG.warning("TLS handshake failed: %s", meaning, extra={"reason": reason, "tls": why})
    return True


def _log_wrong_name(line: str) -> bool:
    """Not counted: the peer decides whether the handshake fails."""
    found = _NAME_MISMATCH.search(line)
    if found is None:
        return False
    text = "TLS: the peer expects %s, which our certificate is not valid for; is it the right port?"
    _LOG.warning(text, found["name"], extra={"reason": "name"})
    return True
