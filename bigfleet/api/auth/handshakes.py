"""Failed TLS handshakes, from the lines that gRPC's own code writes about them to sentences and a
metric. Those lines do not name the peer, so ours cannot either.
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
    "the peer does not accept our certificate: it trusts another authority, looks for another "
    "role, or ours has expired; its own error says which"
)
# What OpenSSL says, what the metric calls it, and what it means; the first that fits counts.
_MEANINGS: Sequence[tuple[str, str, str]] = (
    ("certificate has expired", "expired", "the peer's certificate has expired"),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "authority",
        "the peer's certificate was signed by no authority in our ca.crt",
    ),
    ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "no-certificate", "the peer showed no certificate"),
    (
        "WRONG_VERSION_NUMBER",
        "plaintext",
        "the peer speaks plaintext; start it with --identity DIR",
    ),
    ("HTTP_REQUEST", "plaintext", "the peer speaks plaintext; start it with --identity DIR"),
    ("NO_SHARED_CIPHER", "old-tls", "the peer does not speak TLS 1.3"),
    ("_ALERT_", "refused-by-peer", _REFUSED_BY_PEER),
    # What is left of an alert that OpenSSL's clients send unencrypted.
    ("BAD_PACKET_LENGTH", "refused-by-peer", _REFUSED_BY_PEER),
)


def record_handshake_failure(line: str) -> bool:
    """Log and count the handshake that `line` is about; False when it is about something else."""
    found = _FAILED.search(line)
    if found is None:
        return _note_wrong_name(line)
    why = found["why"].strip()
    reason, meaning = next(
        ((reason, meaning) for said, reason, meaning in _MEANINGS if said in why),
        ("other", "see what TLS says"),
    )
    metrics.handshakes_failed.labels(reason).inc()
    _LOG.warning("TLS handshake failed: %s", meaning, extra={"reason": reason, "tls": why})
    return True


def _note_wrong_name(line: str) -> bool:
    """Not counted: it is for the peer to say whether that ends the handshake."""
    found = _NAME_MISMATCH.search(line)
    if found is None:
        return False
    text = "TLS: the peer looks for %s, and our certificate is not valid for that: is it our port?"
    _LOG.warning(text, found["name"], extra={"reason": "name"})
    return True
