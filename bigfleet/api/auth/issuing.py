"""Identities for test fleets: a CA, and a directory for each process.

    DIR/authority/       ca.crt, ca.key: whoever has the key can impersonate anyone
    DIR/shard-a/         tls.crt, tls.key, ca.crt of bigfleet://shard/a
    DIR/readonly/        read-only access

In production an issuer (cert-manager, SPIFFE, Vault) provides the same files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from types import MappingProxyType

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from bigfleet.api.auth import certificates
from bigfleet.api.auth.certificates import Authority
from bigfleet.api.auth.identity import AUTHORITY, CERTIFICATE, KEY, Identity, Principal
from bigfleet.model.errors import InvalidInput

AUTHORITY_VALID = timedelta(days=3650)
_LOOPBACK = (IPv4Address("127.0.0.1"), IPv6Address("::1"))
_SERVERS = ("shard", "coordinator", "provider")
_AUTHORITY_DIRECTORY, _AUTHORITY_KEY = "authority", "ca.key"
AUTHORITY_FILES = (AUTHORITY, _AUTHORITY_KEY)


def directory_of(out: Path, name: Principal) -> Path:
    """The directory below `out` for the identity of `name`."""
    return out / (f"{name.role}-{name.id}" if name.id else name.role)


def authority_directory(out: Path) -> Path:
    """The directory below `out` with the authority's certificate and key."""
    return out / _AUTHORITY_DIRECTORY


def issue(
    out: Path,
    names: Sequence[Principal],
    validity: timedelta,
    new_authority: bool = False,
    hosts: Mapping[Principal, Sequence[str]] = MappingProxyType({}),
) -> dict[Principal, Identity]:
    """Create or renew the identities of `names` below `out`, signed by its authority, which is
    created if missing. `new_authority` replaces it: every identity there then trusts the new and
    the previous one, so that a running fleet can be rotated. `hosts` are names of machines for
    which a certificate is valid too: etcd verifies its peers' hosts.

    InvalidInput when an id cannot be a directory's name or the authority's files are invalid.
    """
    for name in names:
        _check(name)
    authority, trusted = _authority(authority_directory(out), new_authority)
    for path in out.glob(f"*/{AUTHORITY}"):
        if path.read_bytes() != trusted:
            _write(path, trusted)
    return {
        name: _issue(out, name, authority, trusted, validity, hosts.get(name, ())) for name in names
    }


def _check(name: Principal) -> None:
    if name.id and (not name.id.isprintable() or set(name.id) & set('/\\ "') or name.id[0] == "."):
        raise InvalidInput(f"{name.role} id", name.id, "cannot be part of a directory's name")


def _authority(directory: Path, renewed: bool) -> tuple[Authority, bytes]:
    """The authority, and the trust bundle: the authority, then the one it replaced."""
    certificate, key = directory / AUTHORITY, directory / _AUTHORITY_KEY
    exists = certificate.exists()
    if exists and not renewed:
        return _read_authority(certificate, key), certificate.read_bytes()
    made = Authority.create("bigfleet test fleet", AUTHORITY_VALID)
    trusted = certificates.certificate_pem(made.certificate)
    if exists:
        before = _read_authority(certificate, key).certificate
        trusted += certificates.certificate_pem(before)
    _write(key, certificates.key_pem(made.key))
    _write(certificate, trusted)
    return made, trusted


def _read_authority(certificate: Path, key: Path) -> Authority:
    try:
        newest = x509.load_pem_x509_certificates(certificate.read_bytes())[0]
        private = serialization.load_pem_private_key(key.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise InvalidInput("authority", str(key), f"cannot be used: {error}") from None
    if not certificates.same_key(newest, private):
        raise InvalidInput("authority", str(key), f"is not the key of {certificate}")
    assert isinstance(private, certificates.PrivateKey)
    return Authority(newest, private)


def _issue(
    out: Path,
    name: Principal,
    authority: Authority,
    trusted: bytes,
    validity: timedelta,
    hosts: Sequence[str],
) -> Identity:
    alternatives: list[x509.GeneralName] = [x509.UniformResourceIdentifier(str(name))]
    if name.role in _SERVERS:
        alternatives.append(x509.DNSName(f"{name.role}.bigfleet.internal"))
    if name.role == "coordinator":
        # etcd members verify each other's host; in a test fleet they share one machine.
        alternatives += [x509.DNSName("localhost"), *(x509.IPAddress(each) for each in _LOOPBACK)]
    alternatives += map(certificates.host_name, hosts)
    leaf, key = authority.issue(f"bigfleet {name.role}", alternatives, validity)
    identity = Identity(directory_of(out, name))
    _write(identity.directory / AUTHORITY, trusted)
    _write(identity.directory / KEY, certificates.key_pem(key))
    _write(identity.directory / CERTIFICATE, certificates.certificate_pem(leaf))
    return identity


def _write(path: Path, content: bytes) -> None:
    """Replace the file atomically."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    draft.rename(path)
