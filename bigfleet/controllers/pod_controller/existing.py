"""CapacityRequests as they are in the cluster: what each asks for, and which are short. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from bigfleet.api.install import GROUP_VERSION
from bigfleet.api.marks import (
    CAPACITY_SHORT,
    INVALID,
    NO_MATCHING_SUPPLY,
    ROLLUP_REJECTED,
    ROLLUP_TOO_LARGE,
)
from bigfleet.controllers.pod_controller import requests
from bigfleet.controllers.pod_controller.pods import ExistingRequest
from bigfleet.controllers.pod_controller.unschedulable import MOST_TIMES

# Reasons that are about the request itself, not about what its need is given.
_OF_ITS_EQUALS = (NO_MATCHING_SUPPLY, INVALID, ROLLUP_TOO_LARGE, ROLLUP_REJECTED)


class Key(NamedTuple):
    """Where a request lives."""

    namespace: str
    name: str

    @property
    def collection(self) -> str:
        """The path of the requests of its namespace."""
        return f"{GROUP_VERSION}/namespaces/{self.namespace}/capacityrequests"

    @property
    def path(self) -> str:
        return f"{self.collection}/{self.name}"

    def additional(self) -> Iterator[Key]:
        """The keys that this request's Pod may use to ask for additional machines."""
        for number in range(1, MOST_TIMES + 1):
            yield Key(self.namespace, requests.additional_name(self.name, number))


@dataclass(eq=False)
class Spec:
    """A request's spec, shared by all Pods that ask for the same."""

    body: Mapping[str, Any]
    digest: bytes

    @cached_property
    def without_amounts(self) -> bytes:
        """Equal for requests that differ in their amounts alone."""
        return _without_amounts(self.body)


class Shortage(NamedTuple):
    """Why there are too few machines, in a word and in a sentence."""

    reason: str
    message: str


class ExistingRequests:
    """Kept up to date by a watch, and ahead of it by our own writes."""

    def __init__(self) -> None:
        self._digests: dict[Key, bytes] = {}
        self._short: dict[Key, tuple[bytes, Shortage]] = {}
        self._short_together: dict[bytes, dict[Key, Shortage]] = {}
        self._additional: set[Key] = set()

    def replace(self, requests: Iterable[ExistingRequest]) -> None:
        """These are all there are."""
        for each in (self._digests, self._short, self._short_together, self._additional):
            each.clear()
        for request in requests:
            self.put(request)

    def put(self, request: ExistingRequest) -> Key:
        """One is there, in this state."""
        key = Key(request.metadata.namespace, request.metadata.name)
        digest = digest_of(request.spec)
        if self._digests.get(key) != digest:  # else the one that is there is shared by many
            self._digests[key] = digest
        if request.spec.get("additional"):
            self._additional.add(key)
        self._not_short(key)
        for condition in request.status.conditions or ():
            if condition.type == CAPACITY_SHORT and condition.status == "True":
                shortage = Shortage(condition.reason, condition.message)
                self._note_short(key, request.spec, shortage)
        return key

    def wrote(self, key: Key, spec: Spec) -> None:
        """We have just written it ourselves."""
        self._digests[key] = spec.digest
        if spec.body.get("additional"):
            self._additional.add(key)

    def remove(self, key: Key) -> None:
        """It is gone."""
        self._digests.pop(key, None)
        self._additional.discard(key)
        self._not_short(key)

    @property
    def any_additional(self) -> bool:
        """Whether any Pod has asked for an additional machine."""
        return bool(self._additional)

    def __contains__(self, key: object) -> bool:
        return key in self._digests

    def digest(self, key: Key) -> bytes | None:
        """The digest of its spec; None when there is no such request."""
        return self._digests.get(key)

    def asked(self, first: Key) -> int:
        """How many additional machines the Pod with this first request has asked for."""
        there = (number for number, key in enumerate(first.additional(), 1) if key in self)
        return max(there, default=0)

    def shortage(self, key: Key, spec: Spec) -> Shortage | None:
        """Why the request `key` with this spec waits for machines; None if it is not known to.

        Not each request of a short need says so. One that nothing can hold, or that was never asked
        for, speaks for its equals only; any other for all that differ from it in nothing but their
        amounts.
        """
        own = self._short.get(key)
        if own is not None:
            return own[1]
        for together in (spec.digest, _scoped(key.namespace, spec.body, spec.without_amounts)):
            if others := self._short_together.get(together):
                return next(iter(others.values()))
        return None

    def _note_short(self, key: Key, body: Mapping[str, Any], shortage: Shortage) -> None:
        if shortage.reason in _OF_ITS_EQUALS:
            together = digest_of(body)
        else:
            together = _scoped(key.namespace, body, _without_amounts(body))
        self._short[key] = together, shortage
        self._short_together.setdefault(together, {})[key] = shortage

    def _not_short(self, key: Key) -> None:
        if (known := self._short.pop(key, None)) is None:
            return
        others = self._short_together[known[0]]
        del others[key]
        if not others:
            del self._short_together[known[0]]


def digest_of(spec: Mapping[str, Any]) -> bytes:
    """Equal for equal specs."""
    return blake2b(msgspec.json.encode(spec, order="deterministic"), digest_size=16).digest()


def _without_amounts(spec: Mapping[str, Any]) -> bytes:
    return digest_of({field: value for field, value in spec.items() if field != "resources"})


def _scoped(namespace: str, body: Mapping[str, Any], digest: bytes) -> bytes:
    """Terms between pods are about those of one namespace; anything else about all."""
    between = any(field in body for field in requests.BETWEEN_PODS)
    return digest + namespace.encode() if between else digest
