"""A process's identity: a certificate that names it in one URI, its key, and the authorities that
it trusts. Three files in one directory, reloaded when they change.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from bigfleet.api.auth import certificates
from bigfleet.model.errors import BigFleetError, InvalidInput
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
CERTIFICATE, KEY, AUTHORITY = "tls.crt", "tls.key", "ca.crt"
SCHEME = "bigfleet://"
NAMED_ROLES = ("cluster", "shard", "coordinator", "provider")
UNNAMED_ROLES = ("admin", "readonly")


@dataclass(frozen=True)
class Principal:
    """The name bigfleet://ROLE[/ID]; `id` is "" for roles without names."""

    role: str
    id: str = ""

    def __str__(self) -> str:
        return f"{SCHEME}{self.role}" + (f"/{self.id}" if self.id else "")

    @staticmethod
    def parse(uri: str) -> Principal:
        """InvalidInput unless `uri` is a principal's name."""
        role, _, own = uri.removeprefix(SCHEME).partition("/")
        with_name = role in NAMED_ROLES and own
        if not uri.startswith(SCHEME) or not (with_name or (role in UNNAMED_ROLES and not own)):
            hint = (
                f"is none of {', '.join(f'{SCHEME}{r}/ID' for r in NAMED_ROLES)}, "
                f"{', '.join(f'{SCHEME}{r}' for r in UNNAMED_ROLES)}"
            )
            raise InvalidInput("certificate: URI", uri, hint)
        return Principal(role, own)


@dataclass(frozen=True)
class IdentityFiles:
    """The contents of the three files, which match, and what the certificate says."""

    certificate: bytes
    key: bytes
    authority: bytes
    name: Principal
    serves_as: tuple[str, ...]
    expires: datetime


@dataclass(frozen=True)
class Identity:
    """`directory` holds tls.crt, tls.key and ca.crt, all PEM."""

    directory: Path

    def load(self) -> IdentityFiles:
        """Read the files; InvalidInput names the invalid file, and why."""
        leaf_path = self.directory / CERTIFICATE
        content = {name: self._read(name) for name in (CERTIFICATE, KEY, AUTHORITY)}
        leaf = self._certificates(CERTIFICATE, content[CERTIFICATE])[0]
        self._certificates(AUTHORITY, content[AUTHORITY])
        if not certificates.same_key(leaf, self._key(content[KEY])):
            hint = f"is not the key of {leaf_path}; replace both together"
            raise InvalidInput("identity: key", str(self.directory / KEY), hint)
        uris = certificates.uris(leaf)
        if len(uris) != 1:
            hint = f"names {len(uris)} URIs ({', '.join(uris) or 'none'}); it must name exactly one"
            raise InvalidInput("identity: certificate", str(leaf_path), hint)
        return IdentityFiles(
            content[CERTIFICATE],
            content[KEY],
            content[AUTHORITY],
            Principal.parse(uris[0]),
            tuple(certificates.dns_names(leaf)),
            leaf.not_valid_after_utc,
        )

    def load_as(self, role: str, own: str) -> IdentityFiles:
        """As `load`; InvalidInput also unless it is that of `role`/`own`, and not expired."""
        pem, wanted = self.load(), Principal(role, own)
        if pem.name != wanted:
            hint = f"is the identity of {pem.name}, but this process is {wanted}"
            raise InvalidInput("--identity", str(self.directory), hint)
        if pem.expires <= datetime.now(UTC):
            hint = (
                f"expired at {pem.expires.isoformat()}; renew it, for example by `bigfleet certs`"
            )
            raise InvalidInput("--identity", str(self.directory / CERTIFICATE), hint)
        return pem

    def version(self) -> tuple[tuple[int, int, int], ...]:
        """Changes whenever a file does; OSError when a file is missing."""
        stats = [(self.directory / name).stat() for name in (CERTIFICATE, KEY, AUTHORITY)]
        return tuple((stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats)

    def _read(self, name: str) -> bytes:
        try:
            return (self.directory / name).read_bytes()
        except OSError as error:
            hint = (
                f"cannot be read ({error.strerror}); an identity is a directory with "
                f"{CERTIFICATE}, {KEY} and {AUTHORITY}, as `bigfleet certs` makes them"
            )
            raise InvalidInput("identity", str(self.directory / name), hint) from None

    def _certificates(self, name: str, pem: bytes) -> list[x509.Certificate]:
        try:
            return x509.load_pem_x509_certificates(pem)
        except ValueError:
            hint = "contains no certificate in PEM"
            raise InvalidInput("identity", str(self.directory / name), hint) from None

    def _key(self, pem: bytes) -> object:
        try:
            return serialization.load_pem_private_key(pem, None)
        except (ValueError, TypeError):
            hint = "contains no unencrypted private key in PEM"
            raise InvalidInput("identity: key", str(self.directory / KEY), hint) from None


class IdentityReloader:
    """An identity's newest valid files. While the files do not match, as during their replacement,
    or name another principal, the last valid ones are used.
    """

    def __init__(self, identity: Identity) -> None:
        """InvalidInput when the files are not valid at the start."""
        self._identity = identity
        self._version = self._refused = self._current_version()
        self._pem = identity.load()
        self._note()

    def current(self) -> IdentityFiles:
        """The files for the next connection."""
        version = self._current_version()
        if version is not None and version != self._version:
            self._reload(version)
        return self._pem

    def _current_version(self) -> tuple[tuple[int, int, int], ...] | None:
        try:
            return self._identity.version()
        except OSError:
            return None

    def _reload(self, version: tuple[tuple[int, int, int], ...]) -> None:
        """Each connection tries again: a file may become readable without being changed."""
        try:
            name = self._pem.name
            self._pem = self._identity.load_as(name.role, name.id)
        except BigFleetError as error:
            if version != self._refused:
                _LOG.error("changed identity is invalid, keeping the last one: %s", error)
            self._refused = version
        else:
            self._version = version
            self._note()
            _LOG.info("identity reloaded: %s, expires %s", self._pem.name, self._pem.expires)

    def _note(self) -> None:
        metrics.identity_expires.labels(str(self._pem.name)).set(self._pem.expires.timestamp())
