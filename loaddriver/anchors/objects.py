"""Requests and constraints of Pods, and allocatable of Nodes, from their API objects."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from bigfleet.model import resources
from loaddriver.anchors.pod_shape import PodShape, Requirement
from loaddriver.record.watched import Node, PodSpec

_ONE_SLOT = resources.parse(resources.PODS, "1", round_up=True)
_BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")


class _Read(msgspec.Struct, rename="camel"):
    pass


class _Resources(_Read):
    requests: dict[str, str] = {}


class _Container(_Read):
    resources: _Resources = msgspec.field(default_factory=_Resources)


class _Term(_Read):
    match_expressions: tuple[Requirement, ...] = ()


class _Terms(_Read):
    node_selector_terms: tuple[_Term, ...] = ()


class _NodeAffinity(_Read):
    required: _Terms | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class _Affinity(_Read):
    node_affinity: _NodeAffinity | None = None


_CONTAINERS = msgspec.json.Decoder(list[_Container])
_AFFINITY = msgspec.json.Decoder(_Affinity)
_TEXTS = msgspec.json.Decoder(dict[str, str])


def usable(node: Node) -> bool:
    """Whether the Node is Ready and accepts pods without tolerations, as those of gangs are."""
    tainted = any(taint.effect in _BLOCKING_EFFECTS for taint in node.spec.taints)
    return node.ready and not node.spec.unschedulable and not tainted


def requests_of(spec: PodSpec) -> Mapping[str, int]:
    """The effective requests of a Pod: the larger of containers' sum and any init container, plus
    overhead and a pod slot.
    """
    return _requests(bytes(spec.containers), bytes(spec.init_containers), bytes(spec.overhead))


def shape_of(spec: PodSpec) -> PodShape:
    """What a Pod requires of a node, equal for all Pods of one template."""
    return PodShape(
        requests=tuple(sorted(requests_of(spec).items())),
        node_selector=tuple(sorted(_texts(spec.node_selector).items())),
        node_terms=_terms(_AFFINITY.decode(spec.affinity) if spec.affinity else None),
    )


def allocatable_of(node: Node) -> dict[str, int]:
    """The allocatable resources of the Node."""
    return {
        name: _parse(name, text, round_up=False) for name, text in node.status.allocatable.items()
    }


# Pods of one template have equal bytes, so most are cache hits.
@lru_cache(maxsize=4096)
def _requests(containers: bytes, init_containers: bytes, overhead: bytes) -> Mapping[str, int]:
    total = resources.add(_requests_of_each(containers))
    for each in _requests_of_each(init_containers):
        for name, amount in each.items():
            total[name] = max(total.get(name, 0), amount)
    return resources.add([total, _units(_texts(overhead)), {resources.PODS: _ONE_SLOT}])


def _requests_of_each(containers: bytes) -> list[dict[str, int]]:
    decoded = _CONTAINERS.decode(containers) if containers else []
    return [_units(each.resources.requests) for each in decoded]


def _texts(written: bytes | msgspec.Raw) -> dict[str, str]:
    return _TEXTS.decode(written) if written else {}


def _terms(affinity: _Affinity | None) -> tuple[tuple[Requirement, ...], ...] | None:
    required = affinity and affinity.node_affinity and affinity.node_affinity.required
    if not required:
        return None
    return tuple(term.match_expressions for term in required.node_selector_terms)


def _units(quantities: Mapping[str, str]) -> dict[str, int]:
    return {name: _parse(name, text, round_up=True) for name, text in quantities.items()}


@lru_cache(maxsize=4096)
def _parse(resource: str, quantity: str, *, round_up: bool) -> int:
    return resources.parse(resource, quantity, round_up=round_up)
