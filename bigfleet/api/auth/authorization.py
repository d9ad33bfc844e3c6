"""Authorization of gRPC calls: one table of rules, and the interceptor that enforces it.

Callers are identified by their certificates. A message that names its sender (a Hello its cluster,
a provider call its shard) must name the caller, so that no shard can act as another.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import grpc.aio

from bigfleet.api.auth.identity import Principal
from bigfleet.model.errors import BigFleetError, InvalidInput
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
_PACKAGE = "bigfleet.v1alpha1"
_TLS = "TLSv1.3"

Context = grpc.aio.ServicerContext[Any, Any]
# Returns the sender's id in a message; None where the message has none.
SenderOf = Callable[[Any], str | None]


@dataclass(frozen=True)
class Rule:
    """`roles` may call; callers of `restricted_role` only as themselves, by the id that `sender`
    finds in the message.
    """

    roles: frozenset[str]
    restricted_role: str = ""
    sender: SenderOf | None = None


# Full method name to its rule; a method without a rule is denied to all.
AuthorizationTable = Mapping[str, Rule]


def _hello(message: Any) -> str | None:
    return message.hello.cluster_id if message.WhichOneof("message") == "hello" else None


def _shard(message: Any) -> str:
    return str(message.shard_id)


def _asking_shard(message: Any) -> str:
    return str(message.asking_shard_id)


def _replica(message: Any) -> str:
    return str(message.node_id)


_ADMIN = Rule(frozenset({"admin"}))
_READ = Rule(frozenset({"admin", "readonly"}))
_REPLICA = Rule(frozenset({"admin", "coordinator"}), "coordinator", _replica)
# Replicas read each other's state, to tell a failover from a planned leader change.
_FLEET_READ = Rule(frozenset({"admin", "coordinator", "readonly"}))
_OWN_SHARD = Rule(frozenset({"admin", "shard"}), "shard", _shard)
_PROVIDER_READ = Rule(frozenset({"admin", "readonly", "shard"}))

_SERVICES: Mapping[str, Mapping[str, Rule]] = {
    "Shard": {"Session": Rule(frozenset({"cluster"}), "cluster", _hello)},
    "ShardRead": {
        "InspectNeeds": _READ,
        "InspectMachine": _READ,
        "InspectCeilings": _READ,
        "Checkpoint": _READ,
    },
    "ShardAdmin": {"RemoveCluster": _ADMIN},
    "CapacityProvider": {
        "Create": _OWN_SHARD,
        "Configure": _OWN_SHARD,
        "Drain": _OWN_SHARD,
        "Delete": _OWN_SHARD,
        "ClaimEpoch": _OWN_SHARD,
        "Get": _PROVIDER_READ,
        "List": _PROVIDER_READ,
    },
    "Coordinator": {
        "ReportShard": Rule(frozenset({"admin", "shard"}), "shard", _shard),
        "ClaimEpoch": _OWN_SHARD,
        "ResolveCluster": Rule(frozenset({"admin", "shard"}), "shard", _asking_shard),
        "AssignDomain": _ADMIN,
        "UnassignDomain": _ADMIN,
        "RemoveShard": _ADMIN,
        "SetQuota": _ADMIN,
        "SnapshotSave": _ADMIN,
        "JoinRaftCluster": _REPLICA,
        "LeaveRaftCluster": _REPLICA,
        # A new leader checks whether its predecessor is alive.
        "ListShards": Rule(_READ.roles | {"coordinator"}),
        "ListDomainAssignments": _FLEET_READ,
        "ListClusterAssignments": _FLEET_READ,
        "ListQuotas": _FLEET_READ,
        "ListProviders": _FLEET_READ,
        "ListShardReports": _FLEET_READ,
    },
}
AUTHORIZATION_TABLE: AuthorizationTable = {
    f"/{_PACKAGE}.{service}/{method}": rule
    for service, methods in _SERVICES.items()
    for method, rule in methods.items()
}


class CallDenied(BigFleetError):
    """A call that is denied with `status`."""

    def __init__(self, status: grpc.StatusCode, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def authenticate(context: Context) -> Principal:
    """The caller; CallDenied without a valid certificate URI, or over an older TLS."""
    properties = context.auth_context()
    uris = [value.decode(errors="replace") for value in properties.get("peer_uri", [])]
    if (version := b"".join(properties.get("ssl_tls_version", []))) != _TLS.encode():
        text = f"the connection is {version.decode() or 'plaintext'}; only {_TLS} is served here"
        raise CallDenied(grpc.StatusCode.UNAUTHENTICATED, text)
    if len(uris) != 1:
        text = f"your certificate names {len(uris)} URIs; it must name exactly one"
        raise CallDenied(grpc.StatusCode.UNAUTHENTICATED, text)
    try:
        return Principal.parse(uris[0])
    except InvalidInput as error:
        raise CallDenied(grpc.StatusCode.UNAUTHENTICATED, f"your {error}") from None


def authorize(rule: Rule | None, caller: Principal, method: str) -> None:
    """CallDenied unless `rule` allows `caller` to call `method`."""
    roles = rule.roles if rule else frozenset[str]()
    if caller.role not in roles:
        text = f"{caller} may not call {method}; allowed: {', '.join(sorted(roles)) or 'none'}"
        raise CallDenied(grpc.StatusCode.PERMISSION_DENIED, text)


def check_sender(rule: Rule, caller: Principal, message: Any) -> None:
    """CallDenied when `message` names a sender other than `caller`."""
    if rule.sender is None or caller.role != rule.restricted_role:
        return
    claimed = rule.sender(message)
    if claimed is not None and claimed != caller.id:
        text = f"{caller} may not speak for {rule.restricted_role} {claimed!r}"
        raise CallDenied(grpc.StatusCode.PERMISSION_DENIED, text)


# Generic in its stubs only.
if TYPE_CHECKING:
    _Interceptor = grpc.aio.ServerInterceptor[Any, Any]
else:
    _Interceptor = grpc.aio.ServerInterceptor


class AuthorizationInterceptor(_Interceptor):
    """Enforces `rules` on every call; denied calls are counted and logged."""

    def __init__(self, rules: AuthorizationTable) -> None:
        self._rules = rules

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """The call's handler, wrapped in the checks."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        return _AuthorizedHandler(handler_call_details.method, self._rules).handler(handler)


class _AuthorizedHandler:
    def __init__(self, method: str, rules: AuthorizationTable) -> None:
        self._method, self._rule = method, rules.get(method)

    def handler(self, plain: Any) -> Any:
        """`plain` with the caller checked first, and each message when it arrives."""
        one_answer = plain.unary_unary or plain.stream_unary
        answers = plain.unary_stream or plain.stream_stream
        streamed = plain.stream_unary or plain.stream_stream
        make = {
            (False, False): grpc.unary_unary_rpc_method_handler,
            (False, True): grpc.unary_stream_rpc_method_handler,
            (True, False): grpc.stream_unary_rpc_method_handler,
            (True, True): grpc.stream_stream_rpc_method_handler,
        }[bool(streamed), bool(answers)]

        async def answer_once(request: Any, context: Context) -> Any:
            return await one_answer(await self._authorized(request, context, streamed), context)

        async def answer_often(request: Any, context: Context) -> AsyncIterator[Any]:
            request = await self._authorized(request, context, streamed)
            async with aclosing(answers(request, context)) as stream:
                async for answer in stream:
                    yield answer

        behaviour = answer_often if answers else answer_once
        return make(behaviour, plain.request_deserializer, plain.response_serializer)

    async def _authorized(self, request: Any, context: Context, streamed: bool) -> Any:
        """The request, or the stream of requests, after authorization of its caller."""
        try:
            caller = authenticate(context)
            authorize(self._rule, caller, self._method)
            assert self._rule is not None
            if not streamed:
                check_sender(self._rule, caller, request)
                return request
        except CallDenied as denied:
            await self._deny(context, denied)
        return self._check_each(request, context, caller, self._rule)

    async def _check_each(
        self, requests: AsyncIterator[Any], context: Context, caller: Principal, rule: Rule
    ) -> AsyncIterator[Any]:
        async for message in requests:
            try:
                check_sender(rule, caller, message)
            except CallDenied as denied:
                await self._deny(context, denied)
            yield message

    async def _deny(self, context: Context, denied: CallDenied) -> NoReturn:
        metrics.calls_denied.labels(denied.status.name).inc()
        fields = {"peer": context.peer(), "method": self._method}
        _LOG.warning("call denied: %s", denied, extra=fields)
        await context.abort(denied.status, str(denied))
        raise AssertionError("abort always raises")
