"""The overhead of DaemonSets on each machine, computed from their pod templates."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing

import msgspec

from bigfleet.api.overhead_codec import overhead_of, overheads_to_wire
from bigfleet.api.v1alpha1 import capacity_pb2
from bigfleet.controllers.operator.request_demand import requirements_of, tolerations_of
from bigfleet.controllers.podspec.amounts import effective_requests
from bigfleet.controllers.podspec.node_requirements import (
    RequirementBody,
    node_requirements,
    tolerations,
)
from bigfleet.controllers.podspec.unsupported import Unsupported
from bigfleet.kube.client import KubeClient
from bigfleet.kube.pod_types import (
    Container,
    PodSpec,
    PodToleration,
    ResourceRequirements,
    SelectorRequirement,
)
from bigfleet.kube.types import ObjectMeta
from bigfleet.kube.watch import Listed, Watch
from bigfleet.model import resources
from bigfleet.model.errors import InvalidInput
from bigfleet.model.need import NodeOverhead, Term

_LOG = logging.getLogger(__name__)
_PATH = "/apis/apps/v1/daemonsets"
# Without access to DaemonSets the cluster is served all the same.
_LIST_TIMEOUT_SECONDS = 10.0
# Tolerations that the DaemonSet controller adds to its pods.
_NODE = "node.kubernetes.io"
_ADDED_TOLERATIONS = tuple(
    PodToleration(f"{_NODE}/{key}", "Exists", "", effect)
    for effect, keys in (
        ("NoExecute", ("not-ready", "unreachable")),
        ("NoSchedule", ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")),
    )
    for key in keys
)
_ADDED_ON_HOST_NETWORK = PodToleration(f"{_NODE}/network-unavailable", "Exists", "", "NoSchedule")


class _Template(msgspec.Struct):
    spec: PodSpec


class _Spec(msgspec.Struct):
    template: _Template


class DaemonSet(msgspec.Struct):
    """The parts of a DaemonSet that decide its overhead."""

    metadata: ObjectMeta
    spec: _Spec


def overhead(daemon_set: DaemonSet) -> NodeOverhead | None:
    """What one of its pods requests, and which machines run one; None if no new machine can.

    InvalidInput for invalid amounts.
    """
    spec = _with_default_requests(daemon_set.spec.template.spec)
    try:
        where = node_requirements(spec)
    except Unsupported:
        return None
    try:
        amounts = effective_requests(spec)
    except Unsupported as error:
        raise InvalidInput("daemonset", daemon_set.metadata.name, str(error)) from None
    return overhead_of(
        _requirements(where.requirements),
        [_requirements(term) for term in where.alternatives],
        tolerations_of(_tolerated(spec)),
        amounts,
    )


def _with_default_requests(spec: PodSpec) -> PodSpec:
    """Let what has limits and no requests request its limits, as the API server does for Pods but
    not for templates.
    """
    return msgspec.structs.replace(
        spec,
        containers=[_defaulted(each) for each in spec.containers],
        init_containers=[_defaulted(each) for each in spec.init_containers or ()],
        resources=_requesting_limits(spec.resources),
    )


def _defaulted(container: Container) -> Container:
    return msgspec.structs.replace(container, resources=_requesting_limits(container.resources))


def _requesting_limits(asked: ResourceRequirements | None) -> ResourceRequirements | None:
    if asked is None or not asked.limits:
        return asked
    return msgspec.structs.replace(asked, requests={**asked.limits, **(asked.requests or {})})


def _requirements(term: Sequence[RequirementBody]) -> Term:
    return requirements_of(msgspec.convert(list(term), list[SelectorRequirement]))


def _tolerated(spec: PodSpec) -> Sequence[PodToleration]:
    own = msgspec.convert(tolerations(spec), list[PodToleration])
    if any(not toleration.key and not toleration.effect for toleration in own):
        return own  # tolerates everything
    return [*own, *_ADDED_TOLERATIONS, *([_ADDED_ON_HOST_NETWORK] if spec.host_network else [])]


def summed(overheads: Iterable[NodeOverhead]) -> tuple[NodeOverhead, ...]:
    """Sum the overheads that match the same machines; in canonical order."""
    found: dict[NodeOverhead, dict[str, int]] = {}
    for each in overheads:
        machines = NodeOverhead(each.requirements, each.alternatives, each.tolerations, ())
        found[machines] = resources.add([found.get(machines, {}), dict(each.amounts)])
    return tuple(
        sorted(
            NodeOverhead(m.requirements, m.alternatives, m.tolerations, tuple(sorted(a.items())))
            for m, a in found.items()
        )
    )


class DaemonSets:
    """Watches the cluster's DaemonSets; `changed` is called when their overheads change."""

    def __init__(self, client: KubeClient, changed: Callable[[], None]) -> None:
        self._watch = Watch(client, _PATH, DaemonSet)
        self._changed = changed
        self._listed = asyncio.Event()
        self._overheads: dict[tuple[str, str], NodeOverhead | None] = {}
        self._summed: tuple[NodeOverhead, ...] = ()

    def overheads(self) -> Sequence[capacity_pb2.NodeOverhead]:
        """The overheads, as messages for a roll-up."""
        return overheads_to_wire(self._summed)

    async def wait_listed(self) -> None:
        """Wait until they are listed, with a timeout."""
        try:
            async with asyncio.timeout(_LIST_TIMEOUT_SECONDS):
                await self._listed.wait()
        except TimeoutError:
            why = self._watch.stats.last_error or "no answer yet"
            _LOG.error("DaemonSets are ignored until they can be listed: %s", why)

    async def run(self) -> None:
        """Watch until cancelled."""
        async with aclosing(self._watch.follow()) as changes:
            async for change in changes:
                if isinstance(change, Listed):
                    self._overheads = {_key(d): self._read(d) for d in change.items}
                    self._listed.set()
                elif change.deleted:
                    self._overheads.pop(_key(change.item), None)
                else:
                    self._overheads[_key(change.item)] = self._read(change.item)
                self._sum()

    def _read(self, daemon_set: DaemonSet) -> NodeOverhead | None:
        if daemon_set.metadata.deletion_timestamp is not None:
            return None
        try:
            return overhead(daemon_set)
        except InvalidInput as error:
            _LOG.warning("ignoring DaemonSet %s/%s: %s", *_key(daemon_set), error)
            return None

    def _sum(self) -> None:
        before = self._summed
        self._summed = summed(each for each in self._overheads.values() if each is not None)
        if self._summed != before:
            self._changed()


def _key(daemon_set: DaemonSet) -> tuple[str, str]:
    return daemon_set.metadata.namespace, daemon_set.metadata.name
