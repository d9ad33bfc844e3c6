"""What clusters request, as their operators would report it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence

from bigfleet.model import penalty, resources
from bigfleet.model.group import PLAIN, Group, PodGroup
from bigfleet.model.need import Need, Operator, Profile, Requirement, Spread, profile, sizes_of
from loaddriver.plan.manifests import (
    INSTANCE_TYPE_KEY,
    TOPOLOGY_KEYS,
    ZONE_KEY,
    quantities_of,
)
from loaddriver.plan.records import Workload
from loaddriver.plan.workloads import draw_workloads
from loaddriver.profile.archetypes import Archetype
from loaddriver.profile.loading import Profile as LoadProfile

_Key = tuple[Profile, Group]


def needs_of_cluster(load: LoadProfile, cluster: int) -> tuple[Need, ...]:
    """The needs of the cluster of that number, with a group for each gang and each workload with
    hard spread, as operators make them.
    """
    pods: defaultdict[_Key, Counter[tuple[tuple[str, int], ...]]] = defaultdict(Counter)
    for workload in draw_workloads(load, cluster):
        archetype = load.catalog.archetype(workload.archetype)
        size = archetype.sizes[workload.size]
        amounts = resources.parse_requests({**quantities_of(size), "pods": "1"})
        key = _profile_of(workload, archetype), _group_of(workload, archetype)
        pods[key][tuple(sorted(amounts.items()))] += workload.replicas
    return tuple(
        Need(constraints, sizes_of((dict(size), n) for size, n in found.items()), group)
        for (constraints, group), found in pods.items()
    )


def _profile_of(workload: Workload, archetype: Archetype) -> Profile:
    accepted = {
        INSTANCE_TYPE_KEY: archetype.sizes[workload.size].instance_types,
        ZONE_KEY: archetype.zones,
    }
    requirements = [Requirement(key, Operator.IN, values) for key, values in accepted.items()]
    if workload.topology is not None:
        requirements.append(Requirement(TOPOLOGY_KEYS[workload.topology], Operator.SAME))
    return profile(
        requirements,
        _spread_of(workload, archetype),
        workload.priority,
        penalty.bucket(archetype.interruption_penalty_dollars or 0.0),
        penalty.bucket(archetype.reclamation_penalty_dollars or 0.0),
        never_preempts=not archetype.preempts,
    )


def _spread_of(workload: Workload, archetype: Archetype) -> Sequence[Spread]:
    if not workload.spread or archetype.spread is None:
        return ()
    hard = archetype.spread.when_unsatisfiable == "DoNotSchedule"
    return (Spread(ZONE_KEY, archetype.spread.max_skew, hard),)


def _group_of(workload: Workload, archetype: Archetype) -> Group:
    hard = any(spread.hard for spread in _spread_of(workload, archetype))
    if workload.group is None and not hard:
        return PLAIN
    return PodGroup(json.dumps([workload.namespace, workload.name]))
