"""What tenants want in a world that is drawn, and how that changes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bigfleet.model.need import HOSTNAME_LABEL, Spread
from bigfleet.simulation.workload import Labels, Workload

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
    """At `at_seconds` after the start `what` happens to `subject`: to so many pods of `workload`,
    or for `seconds`.
    """

    at_seconds: float
    what: str
    subject: str = ""
    workload: Workload | None = None
    seconds: float = 0.0
    pods: int = 0


def daemons(draw: random.Random) -> tuple[Workload, ...]:
    """What runs on every Node, or on those that tolerate more."""
    requests = {"cpu": f"{draw.choice((50, 100, 400))}m", "memory": "100Mi"}
    everywhere = Workload("agent", 0, requests, tolerated=(TEAM,), kind="DaemonSet")
    untainted = Workload("proxy", 0, {"cpu": "20m", "memory": "50Mi"}, kind="DaemonSet")
    return tuple(each for each in (everywhere, untainted) if draw.random() < 0.4)


def tenants(
    draw: random.Random, types: Sequence[str], clusters: Sequence[str], seconds: float
) -> list[Event]:
    """Workloads that come, grow, shrink, go, lose pods and end."""
    return [
        event
        for cluster in clusters
        for workload in _workloads(draw, types)
        for event in _life(draw, cluster, workload, seconds)
    ]


def growing_tenants(
    draw: random.Random, types: Sequence[str], clusters: Sequence[str], seconds: float
) -> list[Event]:
    """Workloads that come and grow."""
    events = []
    for cluster in clusters:
        for workload in _workloads(draw, types):
            at_seconds = draw.choice((0.0, draw.uniform(0, seconds)))
            events.append(Event(at_seconds, "apply", cluster, workload))
            replicas = workload.replicas
            for later in sorted(
                draw.uniform(at_seconds, seconds) for _ in range(draw.randint(0, 3))
            ):
                replicas += draw.randint(0, replicas)
                events.append(Event(later, "apply", cluster, workload.of(replicas)))
    return events


def _life(draw: random.Random, cluster: str, workload: Workload, seconds: float) -> Iterator[Event]:
    begin = draw.choice((0.0, draw.uniform(0, seconds)))
    yield Event(begin, "apply", cluster, workload)
    for _ in range(draw.randint(0, 3)):
        later, pods = draw.uniform(begin, seconds), draw.randint(1, workload.replicas)
        what = "complete" if workload.kind == "Job" else draw.choice(("apply", "apply", "delete"))
        replicas = draw.choice((0, 1, workload.replicas // 2, workload.replicas * 2))
        changed = workload.of(replicas) if what == "apply" else workload
        yield Event(later, what, cluster, changed, pods=pods)


def _workloads(draw: random.Random, types: Sequence[str]) -> Iterator[Workload]:
    for number in range(draw.randint(1, 6)):
        workload = _workload(draw, f"w-{number}", types)
        if workload.same_key and draw.random() < 0.4:
            yield from _of_mixed_sizes(draw, workload)
        else:
            yield workload
    if draw.random() < 0.3:
        requests = {"cpu": draw.choice(("300", "1")), "memory": "3000Gi"}
        yield Workload(
            "impossible", draw.randint(1, 3), requests, priority=draw.choice(_PRIORITIES)
        )


def _of_mixed_sizes(draw: random.Random, leader: Workload) -> Iterator[Workload]:
    """A gang of a leader and its workers."""
    workers = draw.randint(1, 6)
    gang = replace(leader, app=leader.name, replicas=1, gang_members=1 + workers)
    yield gang
    requests = _requests(draw)
    yield replace(gang, name=f"{leader.name}-worker", replicas=workers, requests=requests)


def _workload(draw: random.Random, name: str, types: Sequence[str]) -> Workload:
    gang = draw.random() < 0.25
    spread, apart = ((), ()) if gang else _terms_between_pods(draw)
    return Workload(
        name=name,
        replicas=draw.choice((1, 2, 3, 4, 8, 12)) if gang else draw.choice((1, 3, 8, 20, 40)),
        requests=_requests(draw),
        selector=_selector(draw, types),
        terms=_node_terms(draw, types),
        tolerated=(TEAM,) if draw.random() < 0.3 else (),
        priority=draw.choice(_PRIORITIES),
        never_preempts=draw.random() < 0.1,
        same_key=draw.choice((RACK, ZONE)) if gang else "",
        apart=apart,
        spread=spread,
        interruption_penalty=draw.choice(_PENALTIES),
        reclamation_penalty=draw.choice(_PENALTIES),
        kind="Job" if draw.random() < 0.25 else "ReplicaSet",
        max_unavailable=draw.choice((None, None, None, 1, 3)),
    )


def _requests(draw: random.Random) -> dict[str, str]:
    millicores = draw.choice(_MILLICORES)
    mebibytes = max(20, millicores * draw.choice(_MEBIBYTES_PER_CORE) // 1000)
    requests = {"cpu": f"{millicores}m", "memory": f"{mebibytes}Mi"}
    if draw.random() < 0.07:
        requests[GPU] = "1"
    return requests


def _selector(draw: random.Random, types: Sequence[str]) -> Labels:
    selector = {}
    if draw.random() < 0.3:
        selector[TYPE] = tuple(sorted(draw.sample(types, draw.randint(1, len(types)))))
    if draw.random() < 0.2:
        selector[ZONE] = tuple(sorted(draw.sample("abc", draw.randint(1, 2))))
    return selector


def _node_terms(draw: random.Random, types: Sequence[str]) -> tuple[Labels, ...]:
    if draw.random() < 0.85:
        return ()
    return ({TYPE: (draw.choice(types),)}, {ZONE: (draw.choice("abc"),)})


def _terms_between_pods(
    draw: random.Random,
) -> tuple[tuple[Spread, ...], tuple[str, ...]]:
    chance = draw.random()
    if chance < 0.1:
        return (), (draw.choice((HOSTNAME_LABEL, HOSTNAME_LABEL, ZONE)),)
    if chance < 0.3:
        key = draw.choice((ZONE, ZONE, HOSTNAME_LABEL))
        return (Spread(key, draw.randint(1, 2), True, draw.choice((1, 1, 2, 3))),), ()
    if chance < 0.4:
        return (Spread(ZONE, 1, False),), ()
    return (), ()
