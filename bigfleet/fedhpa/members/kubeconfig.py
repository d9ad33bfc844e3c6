"""What a member's kubeconfig may say. It was written by somebody else, and is data only.

Commands, files, proxies and other ways to log in would make this process do or read something on
its own machine, with its own rights; a kubeconfig that has any is rejected as a whole.
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

# Two certificates, a key and a token take some 8 KiB. YAML is slow enough to be held to that.
_MOST_CHARACTERS = 64 * 1024
_CA, _CERTIFICATE, _KEY = "certificate-authority-data", "client-certificate-data", "client-key-data"
_READ = {"cluster": {"server", _CA}, "user": {"token", _CERTIFICATE, _KEY}}
# Has no effect here: notes for other programs, and a flag that is set to what it is anyway.
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
    """A kubeconfig's current context: the cluster and the user that it names, as they are there."""

    cluster: Fields
    user: Fields


def parse_current_context(text: str, what: str) -> CurrentContext:
    """What the current context uses; nothing else in the text matters. InvalidInput names `what`.

    Every scalar is taken as text, so that nothing in it turns into a date or a number.
    """
    if len(text) > _MOST_CHARACTERS:
        hint = f"is no kubeconfig: it has more than {_MOST_CHARACTERS} characters"
        raise InvalidInput(what, "...", hint)
    try:
        content = yaml.load(text, yaml.BaseLoader)
        found = msgspec.convert(content, _Kubeconfig)
    except (yaml.YAMLError, msgspec.ValidationError, RecursionError, ValueError) as error:
        raise InvalidInput(what, "...", f"is no kubeconfig: {error}") from None
    context = _one(found.contexts, found.current_context, f"{what}: current-context").context
    cluster, user = context.get("cluster"), context.get("user")
    return CurrentContext(
        _one(found.clusters, cluster, f"{what}: context {found.current_context}: cluster").cluster,
        _one(found.users, user, f"{what}: context {found.current_context}: user").user,
    )


def _one(candidates: Sequence[_Named], name: object, what: str) -> _Named:
    matching = [each for each in candidates if each.name == name]
    if len(matching) != 1:
        there = "is not there" if not matching else f"is there {len(matching)} times"
        raise InvalidInput(what, str(name), f"{there}; name one that is there once")
    return matching[0]


def parse_access(text: str, what: str) -> InlineAccess:
    """The access that the kubeconfig describes, if that is all it does.

    InvalidInput names `what` and the field; it never quotes a credential.
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
        _reject(what, f"user: {_CERTIFICATE}", f"and {_KEY} need each other")
    if not (access.token or access.certificate_pem):
        _reject(what, "user", f"has no credential; it needs a token, or {_CERTIFICATE} and {_KEY}")
    return access


def _read(fields: Fields, part: str, what: str) -> Mapping[str, str]:
    for name, value in fields.items():
        if name in _READ[part] and not isinstance(value, str):
            _reject(what, f"{part}: {name}", "is no text")
        known = name in _READ[part] or name in _WITHOUT_EFFECT or _OFF.get(name) == value
        if not known:
            _reject(what, f"{part}: {name[:80]}", f"is not allowed; {_INSTEAD}")
    return {name: value for name, value in fields.items() if name in _READ[part]}


def _server(url: str, what: str) -> str:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - looking at it is what checks it
    except ValueError as error:
        _reject(what, "cluster: server", f"is no URL: {error}")
    plain = not (parts.username or parts.password or parts.query or parts.fragment)
    if parts.scheme != "https" or not parts.hostname or not plain or not _TOKEN.fullmatch(url):
        _reject(what, "cluster: server", "must be https://HOST:PORT, with a path or without")
    return url.rstrip("/")


def _token(text: str, what: str) -> str:
    if text and not _TOKEN.fullmatch(text):
        _reject(what, "user: token", "has characters that no token has")
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
