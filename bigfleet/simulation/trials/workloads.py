"""Generates the workloads of a trial and their changes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bigfleet.model.ceiling import Ceiling
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.need import Spread
from bigfleet.simulation.cluster.workload import Labels, Workload

RACK, ZONE = "topology.bigfleet/rack", "topology.kubernetes.io/zone"
TYPE = "node.kubernetes.io/instance-type"
TEAM = "example.com/team"
GPU = "nvidia.com/gpu"

_PRIORITIES = (0, 0, 0, 100, 1000, 1_000_000)
_PENALTIES = ("0", "0", "0.4", "32", "4096")
# Three orders of magnitude.
_MILLICORES = (50, 100, 250, 500, 1000, 2000, 4000, 7000, 15_000, 50_000)
_MEBIBYTES_PER_CORE = (500, 1000, 4000, 12_000)


@dataclass(frozen=True)
class Event:
    """`what` happens to `subject` at `at_seconds` after the start: to `pods` pods of `workload`, or
    for `seconds`, or with this `ceiling`.
    """

    at_seconds: float
    what: str
    subject: str = ""
    workload: Workload | None = None
    seconds: float = 0.0
    pods: int = 0
    ceiling: Ceiling | None = None


def daemons(rng: random.Random) -> tuple[Workload, ...]:
    """DaemonSets of every Node, or of those whose taints they tolerate."""
    requests = {"cpu": f"{rng.choice((50, 100, 400))}m", "memory": "100Mi"}
    everywhere = Workload("agent", 0, requests, tolerated=(TEAM,), kind="DaemonSet")
    untainted = Workload("proxy", 0, {"cpu": "20m", "memory": "50Mi"}, kind="DaemonSet")
    return tuple(each for each in (everywhere, untainted) if rng.random() < 0.4)


def tenants(
    rng: random.Random, types: Sequence[str], clusters: Sequence[str], seconds: float
) -> list[Event]:
    """Workloads that are created, scaled, deleted, lose pods and complete."""
    return [
        event
        for cluster in clusters
        for workload in _workloads(rng, types)
        for event in _life(rng, cluster, workload, seconds)
    ]


def growing_tenants(
    rng: random.Random, types: Sequence[str], clusters: Sequence[str], seconds: float
) -> list[Event]:
    """Workloads that are created and only grow."""
    events = []
    for cluster in clusters:
        for workload in _workloads(rng, types):
            at_seconds = rng.choice((0.0, rng.uniform(0, seconds)))
            events.append(Event(at_seconds, "apply", cluster, workload))
            replicas = workload.replicas
            for later in sorted(rng.uniform(at_seconds, seconds) for _ in range(rng.randint(0, 3))):
                replicas += rng.randint(0, replicas)
                events.append(Event(later, "apply", cluster, workload.of(replicas)))
    return events


def _life(rng: random.Random, cluster: str, workload: Workload, seconds: float) -> Iterator[Event]:
    begin = rng.choice((0.0, rng.uniform(0, seconds)))
    yield Event(begin, "apply", cluster, workload)
    for _ in range(rng.randint(0, 3)):
        later, pods = rng.uniform(begin, seconds), rng.randint(1, workload.replicas)
        what = "complete" if workload.kind == "Job" else rng.choice(("apply", "apply", "delete"))
        replicas = rng.choice((0, 1, workload.replicas // 2, workload.replicas * 2))
        changed = workload.of(replicas) if what == "apply" else workload
        yield Event(later, what, cluster, changed, pods=pods)


def _workloads(rng: random.Random, types: Sequence[str]) -> Iterator[Workload]:
    for number in range(rng.randint(1, 6)):
        workload = _workload(rng, f"w-{number}", types)
        if workload.same_key and rng.random() < 0.4:
            yield from _of_mixed_sizes(rng, workload)
        else:
            yield workload
    if rng.random() < 0.3:
        requests = {"cpu": rng.choice(("300", "1")), "memory": "3000Gi"}
        yield Workload("impossible", rng.randint(1, 3), requests, priority=rng.choice(_PRIORITIES))


def _of_mixed_sizes(rng: random.Random, leader: Workload) -> Iterator[Workload]:
    """A gang of a leader and its workers."""
    workers = rng.randint(1, 6)
    gang = replace(leader, app=leader.name, replicas=1, gang_members=1 + workers)
    yield gang
    requests = _requests(rng)
    yield replace(gang, name=f"{leader.name}-worker", replicas=workers, requests=requests)


def _workload(rng: random.Random, name: str, types: Sequence[str]) -> Workload:
    gang = rng.random() < 0.25
    spread, anti_affinity = ((), ()) if gang else _terms_between_pods(rng)
    return Workload(
        name=name,
        replicas=rng.choice((1, 2, 3, 4, 8, 12)) if gang else rng.choice((1, 3, 8, 20, 40)),
        requests=_requests(rng),
        selector=_selector(rng, types),
        terms=_node_terms(rng, types),
        tolerated=(TEAM,) if rng.random() < 0.3 else (),
        priority=rng.choice(_PRIORITIES),
        never_preempts=rng.random() < 0.1,
        same_key=rng.choice((RACK, ZONE)) if gang else "",
        anti_affinity=anti_affinity,
        spread=spread,
        interruption_penalty=rng.choice(_PENALTIES),
        reclamation_penalty=rng.choice(_PENALTIES),
        kind="Job" if rng.random() < 0.25 else "ReplicaSet",
        max_unavailable=rng.choice((None, None, None, 1, 3)),
    )


def _requests(rng: random.Random) -> dict[str, str]:
    millicores = rng.choice(_MILLICORES)
    mebibytes = max(20, millicores * rng.choice(_MEBIBYTES_PER_CORE) // 1000)
    requests = {"cpu": f"{millicores}m", "memory": f"{mebibytes}Mi"}
    if rng.random() < 0.07:
        requests[GPU] = "1"
    return requests


def _selector(rng: random.Random, types: Sequence[str]) -> Labels:
    selector = {}
    if rng.random() < 0.3:
        selector[TYPE] = tuple(sorted(rng.sample(types, rng.randint(1, len(types)))))
    if rng.random() < 0.2:
        selector[ZONE] = tuple(sorted(rng.sample("abc", rng.randint(1, 2))))
    return selector


def _node_terms(rng: random.Random, types: Sequence[str]) -> tuple[Labels, ...]:
    if rng.random() < 0.85:
        return ()
    return ({TYPE: (rng.choice(types),)}, {ZONE: (rng.choice("abc"),)})


def _terms_between_pods(
    rng: random.Random,
) -> tuple[tuple[Spread, ...], tuple[str, ...]]:
    chance = rng.random()
    if chance < 0.1:
        return (), (rng.choice((HOSTNAME_LABEL, HOSTNAME_LABEL, ZONE)),)
    if chance < 0.3:
        key = rng.choice((ZONE, ZONE, HOSTNAME_LABEL))
        return (Spread(key, rng.randint(1, 2), True, rng.choice((1, 1, 2, 3))),), ()
    if chance < 0.4:
        return (Spread(ZONE, 1, False),), ()
    return (), ()
