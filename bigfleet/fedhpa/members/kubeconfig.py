"""Parses members' kubeconfigs, which are untrusted input.

Exec plugins, files, proxies and other auth providers would run commands or read files on this
machine; a kubeconfig with any of these is rejected.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.parse import urlsplit

import msgspec
import yaml

from bigfleet.kube.client import InlineAccess
from bigfleet.model.errors import InvalidInput

# Two certificates, a key and a token take some 8 KiB; parsing YAML is slow.
_MOST_CHARACTERS = 64 * 1024
_CA, _CERTIFICATE, _KEY = "certificate-authority-data", "client-certificate-data", "client-key-data"
_READ = {"cluster": {"server", _CA}, "user": {"token", _CERTIFICATE, _KEY}}
# Accepted but ignored.
_WITHOUT_EFFECT = {"extensions", "disable-compression"}
_OFF = {"insecure-skip-tls-verify": "false"}
_INSTEAD = (
    f"only server, {_CA}, token, {_CERTIFICATE} and {_KEY} are read; "
    "`bigfleet fedhpa join` puts files into the text"
)
_TOKEN = re.compile(r"[\x21-\x7e]+")
_PEM_BEGINS = "-----BEGIN "

Fields = Mapping[str, Any]


class _Named(msgspec.Struct):
    name: str
    cluster: dict[str, Any] = {}
    user: dict[str, Any] = {}
    context: dict[str, Any] = {}


class _Kubeconfig(msgspec.Struct, rename="kebab"):
    current_context: str
    contexts: list[_Named]
    clusters: list[_Named]
    users: list[_Named]


@dataclass(frozen=True)
class CurrentContext:
    """The cluster and user entries of a kubeconfig's current context."""

    cluster: Fields
    user: Fields


def parse_current_context(text: str, what: str) -> CurrentContext:
    """The current context's entries; InvalidInput names `what`.

    Every scalar is read as text, so that none becomes a date or a number.
    """
    if len(text) > _MOST_CHARACTERS:
        hint = f"is not a kubeconfig: it has more than {_MOST_CHARACTERS} characters"
        raise InvalidInput(what, "...", hint)
    try:
        content = yaml.load(text, yaml.BaseLoader)
        found = msgspec.convert(content, _Kubeconfig)
    except (yaml.YAMLError, msgspec.ValidationError, RecursionError, ValueError) as error:
        raise InvalidInput(what, "...", f"is not a kubeconfig: {error}") from None
    context = _one(found.contexts, found.current_context, f"{what}: current-context").context
    cluster, user = context.get("cluster"), context.get("user")
    return CurrentContext(
        _one(found.clusters, cluster, f"{what}: context {found.current_context}: cluster").cluster,
        _one(found.users, user, f"{what}: context {found.current_context}: user").user,
    )


def _one(candidates: Sequence[_Named], name: object, what: str) -> _Named:
    matching = [each for each in candidates if each.name == name]
    if len(matching) != 1:
        found = "does not exist" if not matching else f"exists {len(matching)} times"
        raise InvalidInput(what, str(name), f"{found}; it must exist once")
    return matching[0]


def parse_access(text: str, what: str) -> InlineAccess:
    """The access in the kubeconfig's current context.

    InvalidInput for anything else in it; the error names `what` and the field, never a credential.
    """
    parts = parse_current_context(text, what)
    cluster = _read(parts.cluster, "cluster", what)
    user = _read(parts.user, "user", what)
    access = InlineAccess(
        server=_server(cluster.get("server", ""), what),
        ca_pem=_pem(cluster, _CA, what),
        token=_token(user.get("token", ""), what),
        certificate_pem=_pem(user, _CERTIFICATE, what),
        key_pem=_pem(user, _KEY, what),
    )
    if bool(access.certificate_pem) != bool(access.key_pem):
        _reject(what, f"user: {_CERTIFICATE}", f"and {_KEY} must be set together")
    if not (access.token or access.certificate_pem):
        _reject(what, "user", f"has no credential; it needs a token, or {_CERTIFICATE} and {_KEY}")
    return access


def _read(fields: Fields, part: str, what: str) -> Mapping[str, str]:
    for name, value in fields.items():
        if name in _READ[part] and not isinstance(value, str):
            _reject(what, f"{part}: {name}", "is not text")
        known = name in _READ[part] or name in _WITHOUT_EFFECT or _OFF.get(name) == value
        if not known:
            _reject(what, f"{part}: {name[:80]}", f"is not allowed; {_INSTEAD}")
    return {name: value for name, value in fields.items() if name in _READ[part]}


def _server(url: str, what: str) -> str:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - the property validates
    except ValueError as error:
        _reject(what, "cluster: server", f"is not a URL: {error}")
    plain = not (parts.username or parts.password or parts.query or parts.fragment)
    if parts.scheme != "https" or not parts.hostname or not plain or not _TOKEN.fullmatch(url):
        _reject(what, "cluster: server", "must be https://HOST:PORT, optionally with a path")
    return url.rstrip("/")


def _token(text: str, what: str) -> str:
    if text and not _TOKEN.fullmatch(text):
        _reject(what, "user: token", "has invalid characters")
    return text


def _pem(fields: Mapping[str, str], name: str, what: str) -> str:
    data = "".join(fields.get(name, "").split())
    try:
        text = base64.b64decode(data, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        _reject(what, name, "is not PEM in base64")
    if data and _PEM_BEGINS not in text:
        _reject(what, name, "is not PEM in base64")
    return text


def _reject(what: str, field: str, hint: str) -> NoReturn:
    raise InvalidInput(what, field, hint)
