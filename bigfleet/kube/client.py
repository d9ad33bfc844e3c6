"""Requests to one API server; response bodies are returned as bytes.

The official client's models decode a few hundred pods a second. Callers decode with msgspec structs
that declare only the fields they read.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlencode
from weakref import WeakSet

import aiohttp
import msgspec
from aiohttp import AddrInfoType
from kubernetes.aio import config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from bigfleet.model.errors import UNDECODABLE

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT, GONE = 401, 403, 404, 409, 410
TOO_MANY_REQUESTS = 429
ALREADY_EXISTS = "AlreadyExists"
"""A reason of 409; another one is a conflict with somebody else's write."""
_DEADLINE_SECONDS = 30.0
_CONNECT_SECONDS = 10.0
# A silent peer is gone after 30 s. Linux' names; elsewhere the system's intervals hold.
_KEEPALIVE = [
    (getattr(socket, name), value)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
    if hasattr(socket, name)
]
_CLOSE_TIMEOUT_SECONDS, _CLOSE_POLL_INTERVAL_SECONDS = 2.0, 0.005


class ApiError(Exception):
    """An error response: `status` is the HTTP status, `reason` Kubernetes' own (Conflict...)."""

    def __init__(self, request: str, status: int, reason: str, message: str) -> None:
        super().__init__(f"{request}: {status} {reason}: {message}")
        self.status, self.reason, self.message = status, reason, message


# Raised by a request that got no response.
CONNECTION_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)


def is_transient(error: Exception) -> bool:
    """Whether the same request may succeed later: no response, 429, or a server error."""
    if isinstance(error, ApiError):
        return error.status == TOO_MANY_REQUESTS or error.status >= 500
    return isinstance(error, CONNECTION_ERRORS)


class _Status(msgspec.Struct):
    reason: str = ""
    message: str = ""
    code: int = 0


@dataclass(frozen=True)
class InlineAccess:
    """Self-contained access to an API server: its URL, its CA, and a token or a client certificate
    with its key. All but the URL and the token are PEM text. Without a CA the system's are used.
    """

    server: str
    ca_pem: str = ""
    token: str = field(default="", repr=False)
    certificate_pem: str = ""
    key_pem: str = field(default="", repr=False)


class KubeClient:
    """A client of one API server under one identity. Use it as an async context manager, or call
    `close`. It must be created and used in the same event loop.
    """

    def __init__(self, configuration: Configuration) -> None:
        # Callers know which requests are safe to retry. (0 would retry 5xx for ever.)
        configuration.retries = None
        self._configuration = configuration
        self._client = ApiClient(configuration)
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._connector = aiohttp.TCPConnector(
            limit=0,  # watches must not exhaust the connection pool
            ssl=self._client.rest_client.ssl_context,
            socket_factory=self._open_socket,
        )
        # Reading proxies and .netrc from the environment would cost two threads per request.
        session = {"connector": self._connector, "trust_env": False}
        configuration.client_session_kwargs = session
        self.server: str = configuration.host

    @classmethod
    async def from_kubeconfig(cls, path: Path) -> KubeClient:
        """The current context of the kubeconfig file at `path`."""
        configuration = Configuration()
        await config.load_kube_config(config_file=str(path), client_configuration=configuration)
        return cls(configuration)

    @classmethod
    def in_cluster(cls) -> KubeClient:
        """The ServiceAccount of the pod that this process runs in."""
        configuration = Configuration()
        config.load_incluster_config(client_configuration=configuration)
        return cls(configuration)

    @classmethod
    def with_access(cls, access: InlineAccess) -> KubeClient:
        """A client for an access from an untrusted source: redirects are not followed.

        ssl.SSLError when a certificate or key in it cannot be used.
        """
        configuration = Configuration(host=access.server)
        configuration.ca_cert_data = access.ca_pem or None
        if access.token:
            configuration.api_key = {"BearerToken": f"Bearer {access.token}"}
        tracing = aiohttp.TraceConfig()
        tracing.on_request_redirect.append(_refuse_redirect)
        configuration.trace_configs = [tracing]
        client = cls(configuration)
        if access.certificate_pem:
            _load_certificate(client._client.rest_client.ssl_context, access)
        return client

    @property
    def ca_pem(self) -> str:
        """The CA that this client trusts, as PEM text; "" for the system's CAs."""
        if self._configuration.ca_cert_data:
            return str(self._configuration.ca_cert_data)
        path = self._configuration.ssl_ca_cert
        return Path(path).read_text() if path else ""

    async def __aenter__(self) -> KubeClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections, and wait for TLS shutdown to complete."""
        await self._client.close()
        await self._connector.close()
        ends = time.monotonic() + _CLOSE_TIMEOUT_SECONDS
        while True:
            if all(s.fileno() == -1 for s in self._sockets) or time.monotonic() > ends:
                return
            await asyncio.sleep(_CLOSE_POLL_INTERVAL_SECONDS)

    def _open_socket(self, address: AddrInfoType) -> socket.socket:
        opened = socket.socket(*address[:3])
        # Else a watch would wait for minutes on a server that has gone without a word.
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            opened.setsockopt(socket.IPPROTO_TCP, option, value)
        self._sockets.add(opened)
        return opened

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        """The body of GET; ApiError unless 2xx."""
        return await self._request("GET", path, query)

    async def create(self, path: str, body: Any) -> bytes:
        """POST `body` to the collection (or subresource) at `path`."""
        return await self._request("POST", path, None, body)

    async def replace(self, path: str, body: Any) -> bytes:
        """PUT `body` at `path`."""
        return await self._request("PUT", path, None, body)

    async def patch(
        self,
        path: str,
        body: Any,
        kind: str = MERGE_PATCH,
        query: Mapping[str, str] | None = None,
    ) -> bytes:
        """PATCH `path`; `kind` is one of this module's patch types."""
        return await self._request("PATCH", path, query, body, kind)

    async def delete(self, path: str, body: Any = None) -> bytes:
        """DELETE the object (or collection) at `path`; `body` is a DeleteOptions."""
        return await self._request("DELETE", path, None, body)

    async def open(
        self, path: str, query: Mapping[str, str], deadline_seconds: float
    ) -> aiohttp.ClientResponse:
        """A streaming GET that ends by the deadline; the caller closes the response."""
        response = await self._send("GET", path, query, None, None, deadline_seconds)
        if response.status >= 300:
            async with response:
                content = await response.read()
            raise _api_error(f"GET {path}", response.status, content)
        return response

    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Any = None,
        content_type: str | None = None,
    ) -> bytes:
        response = await self._send(method, path, query, body, content_type, _DEADLINE_SECONDS)
        async with response:
            content = await response.read()
        if response.status >= 300:
            raise _api_error(f"{method} {path}", response.status, content)
        return content

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Any,
        content_type: str | None,
        deadline_seconds: float,
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": "application/json"}
        if content_type:
            headers["Content-Type"] = content_type
        await self._client.update_params_for_auth(
            headers, None, ["BearerToken"], path, method, body
        )
        url = self.server + path + (f"?{urlencode(query)}" if query else "")
        timeout = aiohttp.ClientTimeout(total=deadline_seconds, sock_connect=_CONNECT_SECONDS)
        answer = await self._client.call_api(
            method, url, header_params=headers, body=body, _request_timeout=timeout
        )
        response: aiohttp.ClientResponse = answer.response
        return response


def _load_certificate(context: ssl.SSLContext, access: InlineAccess) -> None:
    """OpenSSL reads certificates only from files; an encrypted key must not prompt for its
    passphrase.
    """
    with tempfile.NamedTemporaryFile(mode="w", suffix=".pem") as file:
        file.write(f"{access.certificate_pem}\n{access.key_pem}\n")
        file.flush()
        context.load_cert_chain(file.name, password=lambda: b"")


async def _refuse_redirect(
    _session: aiohttp.ClientSession, _: object, redirect: aiohttp.TraceRequestRedirectParams
) -> None:
    """API servers do not redirect; credentials must not be sent to another server."""
    raise aiohttp.ClientError(f"{redirect.url} redirects, which an API server does not do")


def _api_error(request: str, status: int, content: bytes) -> ApiError:
    try:
        error_status = msgspec.json.decode(content, type=_Status)
    except UNDECODABLE:
        error_status = _Status(message=content[:200].decode(errors="replace"))
    return ApiError(request, status, error_status.reason, error_status.message)
