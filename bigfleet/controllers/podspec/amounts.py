"""A pod's effective requests: what kube-scheduler reserves for it, and one pod slot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from bigfleet.controllers.podspec.unsupported import Unsupported
from bigfleet.kube.pod_types import (
    Container,
    ContainerStatus,
    PodSpec,
    PodStatus,
    Quantities,
    ResourceRequirements,
)
from bigfleet.model import resources
from bigfleet.model.errors import InvalidInput

Amounts = dict[str, int]

# Resources that a Pod may request at pod level, in place of its containers' sum.
_POD_LEVEL = ("cpu", "memory", "hugepages-")
_ALWAYS = "Always"
_RESIZE_PENDING, _INFEASIBLE = "PodResizePending", "Infeasible"


def effective_requests(spec: PodSpec, status: PodStatus | None = None) -> Amounts:
    """The pod's requests in units of `model.resources`; Unsupported for an invalid quantity.

    Containers and sidecars run together; each plain init container runs with the sidecars that
    started before it; pod-level requests, if any, replace that; overhead is added. During a resize
    the larger of the requested and the allocated amount in `status` counts, or only the allocated
    one when the resize is infeasible.
    """
    status = status or PodStatus()
    resizing = _Resizing(status)
    initial = spec.init_containers or []
    sidecars = [resizing.of(c) for c in initial if c.restart_policy == _ALWAYS]
    peak = resources.add([*sidecars, *(resizing.of(c) for c in spec.containers)])
    for init_peak in _init_container_peaks(initial, resizing):
        peak = _largest([peak, init_peak])
    peak |= _pod_level_requests(spec, status, resizing)
    total = resources.add([peak, _units(spec.overhead)])
    total[resources.PODS] = resources.parse(resources.PODS, "1", round_up=True)
    return total


class _Resizing:
    """Requested and allocated amounts, which differ during a resize."""

    def __init__(self, status: PodStatus) -> None:
        pending = (c for c in status.conditions or () if c.type == _RESIZE_PENDING)
        condition = next(pending, None)
        self._infeasible = condition is not None and condition.reason == _INFEASIBLE
        every = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
        self._statuses: Mapping[str, ContainerStatus] = {c.name: c for c in every}

    def of(self, container: Container) -> Amounts:
        """The requests that count for a container or sidecar."""
        requested = _requests(container.resources)
        status = self._statuses.get(container.name)
        if status is None or status.resources is None:
            return requested
        return self.larger(requested, status.resources, status.allocated_resources)

    def larger(
        self, requested: Amounts, actual: ResourceRequirements, allocated: Quantities | None
    ) -> Amounts:
        """The largest of the three by resource; without `requested` if the resize is infeasible."""
        amounts = [_requests(actual), _units(allocated)]
        return _largest(amounts if self._infeasible else [requested, *amounts])


def _pod_level_requests(spec: PodSpec, status: PodStatus, resizing: _Resizing) -> Amounts:
    requested = _requests(spec.resources)
    counted = requested
    if status.resources is not None:
        counted = resizing.larger(requested, status.resources, status.allocated_resources)
    return {name: counted.get(name, 0) for name in requested if name.startswith(_POD_LEVEL)}


def _init_container_peaks(initial: Sequence[Container], resizing: _Resizing) -> Iterator[Amounts]:
    """The sum of what runs while each init container does."""
    started: Amounts = {}
    for container in initial:
        sidecar = container.restart_policy == _ALWAYS
        own = resizing.of(container) if sidecar else _requests(container.resources)
        peak = resources.add([started, own])
        if sidecar:
            started = peak
        yield peak


def _largest(several: Iterable[Mapping[str, int]]) -> Amounts:
    found: Amounts = {}
    for amounts in several:
        for name, amount in amounts.items():
            found[name] = max(found.get(name, 0), amount)
    return found


def _requests(wanted: ResourceRequirements | None) -> Amounts:
    return _units(wanted.requests) if wanted else {}


def _units(quantities: Quantities | None) -> Amounts:
    try:
        return {name: _parse(name, str(q)) for name, q in (quantities or {}).items()}
    except InvalidInput as error:
        field, why = f"request for {error.what}", f"{error.value} {error.hint}"
        raise Unsupported(field, why, metric_label="request") from None


@lru_cache(maxsize=4096)
def _parse(resource: str, quantity: str) -> int:
    return resources.parse(resource, quantity, round_up=True)
