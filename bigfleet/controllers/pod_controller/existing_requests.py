"""The CapacityRequests in the cluster: their specs, and which are short of machines. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from bigfleet.api.install import GROUP_VERSION
from bigfleet.api.wellknown import (
    CAPACITY_SHORT,
    INVALID,
    NO_MATCHING_SUPPLY,
    ROLLUP_REJECTED,
    ROLLUP_TOO_LARGE,
    TOPOLOGY_UNSATISFIABLE,
)
from bigfleet.controllers.pod_controller import requests
from bigfleet.controllers.pod_controller.occupancy import AskingPod
from bigfleet.controllers.pod_controller.pods import ExistingRequest
from bigfleet.controllers.pod_controller.shapes import Shape
from bigfleet.controllers.pod_controller.unschedulable import MAX_ADDITIONAL_PER_POD

# Reasons that are about the request itself, not about its need.
_REASONS_PER_SPEC = (NO_MATCHING_SUPPLY, INVALID, ROLLUP_TOO_LARGE, ROLLUP_REJECTED)


class RequestKey(NamedTuple):
    """A request's namespace and name."""

    namespace: str
    name: str

    @property
    def collection(self) -> str:
        """The path of the requests of its namespace."""
        return f"{GROUP_VERSION}/namespaces/{self.namespace}/capacityrequests"

    @property
    def path(self) -> str:
        return f"{self.collection}/{self.name}"

    def additional(self) -> Iterator[RequestKey]:
        """The keys of the additional requests that this request's Pod may have."""
        return iter(_additional_keys(self))


# The pods that ask again and again; all others are asked about once.
@lru_cache(maxsize=4096)
def _additional_keys(first: RequestKey) -> Sequence[RequestKey]:
    numbers = range(1, MAX_ADDITIONAL_PER_POD + 1)
    names = (requests.additional_name(first.name, number) for number in numbers)
    return [RequestKey(first.namespace, name) for name in names]


@dataclass(eq=False)
class InternedSpec:
    """A request's spec, shared by all Pods with an equal one."""

    body: Mapping[str, Any]
    digest: bytes

    @cached_property
    def without_amounts(self) -> bytes:
        """Equal for requests that differ only in their amounts."""
        return _without_amounts(self.body)


class ShortReason(NamedTuple):
    """Why a request is short: the condition's reason and message."""

    reason: str
    message: str

    def explains(self, shape: Shape) -> bool:
        """Whether it is why a pod of that shape waits, so that it should request no more.

        The shard counts where pods with spread or anti-affinity could run, not where they do. So it
        does not know in which domains kube-scheduler would take one more; the pods of a gang are
        the exception, since a part of it is of no use.
        """
        is_gang, in_domains = shape.affinity_terms, shape.anti_affinity_terms or shape.spread
        return self.reason != TOPOLOGY_UNSATISFIABLE or bool(is_gang) or not in_domains


class ExistingRequests:
    """A cache of the requests, updated by a watch and by our own writes."""

    def __init__(self) -> None:
        self._digests: dict[RequestKey, bytes] = {}
        self._short: dict[RequestKey, tuple[bytes, ShortReason]] = {}
        self._short_together: dict[bytes, dict[RequestKey, ShortReason]] = {}
        self._additional: set[RequestKey] = set()

    def replace(self, requests: Iterable[ExistingRequest]) -> None:
        """Replace all requests."""
        for each in (self._digests, self._short, self._short_together, self._additional):
            each.clear()
        for request in requests:
            self.put(request)

    def put(self, request: ExistingRequest) -> RequestKey:
        """Add or update a request."""
        key = RequestKey(request.metadata.namespace, request.metadata.name)
        digest = digest_of(request.spec)
        if self._digests.get(key) != digest:  # else keep the known object, which many share
            self._digests[key] = digest
        if request.spec.get("additional"):
            self._additional.add(key)
        self._not_short(key)
        for condition in request.status.conditions or ():
            if condition.type == CAPACITY_SHORT and condition.status == "True":
                short_reason = ShortReason(condition.reason, condition.message)
                self._set_short(key, request.spec, short_reason)
        return key

    def wrote(self, key: RequestKey, spec: InternedSpec) -> None:
        """Record our own write of a request."""
        self._digests[key] = spec.digest
        if spec.body.get("additional"):
            self._additional.add(key)

    def remove(self, key: RequestKey) -> None:
        """Remove a request."""
        self._digests.pop(key, None)
        self._additional.discard(key)
        self._not_short(key)

    @property
    def any_additional(self) -> bool:
        """Whether any Pod has requested an additional machine."""
        return bool(self._additional)

    def __contains__(self, key: object) -> bool:
        return key in self._digests

    def digest(self, key: RequestKey) -> bytes | None:
        """The digest of the request's spec; None without such a request."""
        return self._digests.get(key)

    def asked(self, first: RequestKey) -> int:
        """How many additional machines the Pod with this first request has requested."""
        there = (number for number, key in enumerate(first.additional(), 1) if key in self)
        return max(there, default=0)

    def short_reason(self, key: RequestKey, spec: InternedSpec) -> ShortReason | None:
        """Why the request `key` with this spec is short of machines; None if unknown.

        Not every request of a short need has the condition. One that fits no machine, or that was
        never sent to the shard, counts for requests with an equal spec; any other for all that
        differ only in their amounts.
        """
        own = self._short.get(key)
        if own is not None:
            return own[1]
        for together in (spec.digest, _scoped(key.namespace, spec.body, spec.without_amounts)):
            if others := self._short_together.get(together):
                return next(iter(others.values()))
        return None

    def short_reasons(
        self, first: RequestKey, spec_of: Callable[[RequestKey], InternedSpec | None]
    ) -> Iterator[ShortReason]:
        """Why the request `first` of a Pod, and its additional ones, are short of machines."""
        if not self._short:
            return
        for key in (first, *first.additional()):
            spec = spec_of(key)
            if spec is not None and (found := self.short_reason(key, spec)) is not None:
                yield found

    def _set_short(
        self, key: RequestKey, body: Mapping[str, Any], short_reason: ShortReason
    ) -> None:
        if short_reason.reason in _REASONS_PER_SPEC:
            together = digest_of(body)
        else:
            together = _scoped(key.namespace, body, _without_amounts(body))
        self._short[key] = together, short_reason
        self._short_together.setdefault(together, {})[key] = short_reason

    def _not_short(self, key: RequestKey) -> None:
        if (known := self._short.pop(key, None)) is None:
            return
        others = self._short_together[known[0]]
        del others[key]
        if not others:
            del self._short_together[known[0]]


def asking_pods(
    keys: Iterable[RequestKey],
    spec_of: Callable[[RequestKey], InternedSpec | None],
    shape_of: Callable[[RequestKey], Shape],
) -> Iterator[AskingPod]:
    """The Pods with these first requests, with what their latest additional ones require."""
    for key in keys:
        first = spec_of(key)
        made = [spec for each in key.additional() if (spec := spec_of(each))]
        if first is not None and made:
            yield AskingPod(shape_of(key), requests.own_requirements(first.body, made[-1].body))


def digest_of(spec: Mapping[str, Any]) -> bytes:
    """Equal for equal specs."""
    return blake2b(msgspec.json.encode(spec, order="deterministic"), digest_size=16).digest()


def _without_amounts(spec: Mapping[str, Any]) -> bytes:
    return digest_of({field: value for field, value in spec.items() if field != "resources"})


def _scoped(namespace: str, body: Mapping[str, Any], digest: bytes) -> bytes:
    """Scope the digest to the namespace if the spec has terms about other pods."""
    between = any(field in body for field in requests.BETWEEN_PODS)
    return digest + namespace.encode() if between else digest
