"""A healthy fleet as an audit observes it, and ways to plant a difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bigfleet.audit.observations import (
    ClusterView,
    CoordinatorView,
    DecidedMachine,
    DomainRow,
    Observation,
    ProviderView,
    SeenNode,
    SeenRequest,
    ShardView,
)
from bigfleet.controllers.operator.available_capacity import availability_name
from bigfleet.model.domain import Domain
from bigfleet.model.labels import RACK_LABEL
from bigfleet.model.machine import Machine, MachineState
from bigfleet.model.need import NeedKey
from bigfleet.services.shard.decide.hints import hint_key
from tests.support.shard_rig import machine

NOW = 1_800_000_000.0
R1, R2 = Domain(RACK_LABEL, "r1"), Domain(RACK_LABEL, "r2")
_S = MachineState


def in_rack(name: str, rack: str, state: MachineState, cluster: str = "", **more: Any) -> Machine:
    """An elastic machine in a rack of zone a."""
    return machine(name, state, cluster, labels={RACK_LABEL: rack}, **more)


MACHINES = (
    in_rack("m-1", "r1", _S.CONFIGURED, "east"),
    in_rack("m-2", "r1", _S.IDLE),
    in_rack("m-3", "r2", _S.CONFIGURED, "west"),
    in_rack("m-4", "r2", _S.SPECULATIVE),
)


def decided(*machines: Machine) -> Mapping[str, DecidedMachine]:
    """The machines as a shard's decision sees them."""
    return {
        each.id: DecidedMachine(
            each.state, each.cluster, Domain(RACK_LABEL, each.labels[RACK_LABEL])
        )
        for each in machines
    }


def shard(name: str, cluster: str, *machines: Machine) -> ShardView:
    """A shard that serves one cluster with one need of two pods."""
    needs = {NeedKey(cluster, "f1", ""): 2}
    return ShardView(name, decided(*machines), needs, {cluster}, {cluster})


def cluster(node: str) -> ClusterView:
    """A cluster with one machine and two requests of two Pods."""
    requests = [
        SeenRequest(f"web/p{n}", ("f1", ""), pod=f"uid-{n}", created=NOW - 600) for n in (1, 2)
    ]
    return ClusterView(
        nodes=[SeenNode(node, node, NOW - 300)],
        requests=requests,
        pods={"uid-1", "uid-2"},
        upcoming={node: NOW - 320},
        available={availability_name(hint_key("f1")): NOW - 400},
    )


def healthy() -> Observation:
    """Two shards with a rack and a cluster each; s2's rack also has a machine to buy."""
    return Observation(
        at=NOW,
        providers=[ProviderView("kwok", {each.id: each for each in MACHINES})],
        shards={
            "s1": shard("s1", "east", *MACHINES[:2]),
            "s2": shard("s2", "west", *MACHINES[2:]),
        },
        clusters={"east": cluster("m-1"), "west": cluster("m-3")},
        coordinator=CoordinatorView(
            shards={"s1": "127.0.0.1:1", "s2": "127.0.0.1:2"},
            domains={R1: DomainRow("s1"), R2: DomainRow("s2")},
            clusters={"east": "s1", "west": "s2"},
            quotas={("kwok", "a"): {"s1": 2, "s2": 2}},
        ),
    )


def with_machines(seen: Observation, *changed: Machine) -> Observation:
    """The provider lists these, too, or in another state."""
    [provider] = seen.providers
    machines = {**provider.machines, **{each.id: each for each in changed}}
    return replace(seen, providers=[replace(provider, machines=machines)])


def without_machine(seen: Observation, name: str) -> Observation:
    """The provider does not list it."""
    [provider] = seen.providers
    machines = {each.id: each for each in provider.machines.values() if each.id != name}
    return replace(seen, providers=[replace(provider, machines=machines)])


def with_shard(seen: Observation, name: str, **changes: Any) -> Observation:
    """The shard sees other things."""
    return replace(seen, shards={**seen.shards, name: replace(seen.shards[name], **changes)})


def with_cluster(seen: Observation, name: str, **changes: Any) -> Observation:
    """The cluster has other objects."""
    changed = replace(seen.clusters[name], **changes)
    return replace(seen, clusters={**seen.clusters, name: changed})


def with_coordinator(seen: Observation, **changes: Any) -> Observation:
    """The coordinator lists other things."""
    assert seen.coordinator is not None
    return replace(seen, coordinator=replace(seen.coordinator, **changes))
