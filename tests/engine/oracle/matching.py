"""The oracle's own scheduling semantics: which machines a pod may use, and which gangs fold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from bigfleet.engine.snapshot import Demand, Flavour, Fleet
from bigfleet.model.group import FoldedGangs
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.machine import MachineState
from bigfleet.model.need import (
    Need,
    NodeOverhead,
    Operator,
    Profile,
    Requirement,
    Size,
    Spread,
    Taint,
    Toleration,
    profile,
)

_INTEGER = re.compile(r"[+-]?[0-9]+")
_UNCLAIMED_STATES = ("SPECULATIVE", "CREATING", "IDLE", "DRAINING")


def _integer(text: str) -> int | None:
    if not _INTEGER.fullmatch(text) or not -(2**63) <= int(text) < 2**63:
        return None
    return int(text)


def meets(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """One condition on one machine. Each machine has a hostname, unknown in advance."""
    value = labels.get(requirement.key)
    if requirement.key == HOSTNAME_LABEL:
        value = "a hostname that no pod can name"
    match requirement.operator:
        case Operator.EXISTS | Operator.SAME:
            return value is not None
        case Operator.DOES_NOT_EXIST:
            return value is None
        case Operator.IN:
            return value is not None and value in requirement.values
        case Operator.NOT_IN:
            return value is None or value not in requirement.values
    here, bound = _integer(value or ""), int(requirement.values[0])
    if here is None:
        return False
    return here > bound if requirement.operator is Operator.GREATER_THAN else here < bound


def meets_affinity(
    requirements: Iterable[Requirement],
    alternatives: Sequence[Iterable[Requirement]],
    labels: Mapping[str, str],
) -> bool:
    """All requirements, and one of the alternatives if there are any."""
    if not all(meets(requirement, labels) for requirement in requirements):
        return False
    return not alternatives or any(all(meets(r, labels) for r in term) for term in alternatives)


def _tolerated(taint: Taint, toleration: Toleration) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    return toleration.exists or toleration.value == taint.value


def may_stay(tolerations: Sequence[Toleration], taints: Sequence[Taint]) -> bool:
    """Whether the pod tolerates all NoSchedule and NoExecute taints."""
    return all(
        any(_tolerated(taint, toleration) for toleration in tolerations)
        for taint in taints
        if taint.effect in ("NoSchedule", "NoExecute")
    )


def hard_terms(wanted: Profile) -> tuple[Spread, ...]:
    """Hard spread terms; Same disables them."""
    return () if wanted.same_key else tuple(term for term in wanted.spread if term.hard)


def suits(wanted: Profile, flavour: Flavour) -> bool:
    """Everything that can be said about one machine alone. A machine outside all domains of a hard
    term or of an anti-affinity takes none of the pods.
    """
    keys = [*(term.topology_key for term in hard_terms(wanted)), *wanted.anti_affinity]
    return (
        all(key == HOSTNAME_LABEL or key in flavour.labels for key in keys)
        and meets_affinity(wanted.requirements, wanted.alternatives, flavour.labels)
        and may_stay(wanted.tolerations, flavour.taints)
    )


def room_of(flavour: Flavour, overheads: Sequence[NodeOverhead]) -> dict[str, int]:
    """Allocatable of a machine, less DaemonSet overhead."""
    room = dict(flavour.allocatable)
    for each in () if flavour.limited else overheads:
        its = meets_affinity(each.requirements, each.alternatives, flavour.labels)
        if its and may_stay(each.tolerations, flavour.taints):
            for name, amount in each.amounts:
                room[name] = room.get(name, 0) - amount
    return {name: max(0, amount) for name, amount in room.items()}


def folded(fleet: Fleet, demand: Demand) -> Demand:
    """The demand with all gangs that fit on one machine folded into plain needs."""
    needs: list[Need] = []
    clusters: list[int] = []
    for need, cluster in zip(demand.needs, demand.cluster.tolist(), strict=True):
        served = _as_one_pod(need) if _fits(fleet, demand, need, cluster) else need
        names = [(c, n.key) for c, n in zip(clusters, needs, strict=True)]
        if (cluster, served.key) not in names:
            needs.append(served)
            clusters.append(cluster)
        else:
            at = names.index((cluster, served.key))
            needs[at] = replace(served, sizes=_joined((*needs[at].sizes, *served.sizes)))
    return replace(demand, needs=needs, cluster=np.array(clusters, np.int32))


def _fits(fleet: Fleet, demand: Demand, gang: Need, cluster: int) -> bool:
    if gang.profile.same_key is None:
        return False
    if HOSTNAME_LABEL in gang.profile.anti_affinity and gang.pods > 1:
        return False
    alone, whole = _as_one_pod(gang), _whole(gang)
    for row in range(len(fleet)):
        flavour = fleet.flavours[fleet.flavour[row]]
        state = MachineState(int(fleet.state[row]))
        own = state.name in ("CONFIGURED", "CONFIGURING") and fleet.cluster[row] == cluster
        lower_priority = state is MachineState.CONFIGURED and fleet.priority[row] < gang.priority
        of_one_host = gang.profile.same_key == HOSTNAME_LABEL
        if own or lower_priority or of_one_host or state.name in _UNCLAIMED_STATES:
            room = room_of(flavour, demand.overheads.get(cluster, ()))
            if suits(alone.profile, flavour) and all(room.get(n, 0) >= a for n, a in whole):
                return True
    return False


def _whole(gang: Need) -> tuple[tuple[str, int], ...]:
    total: dict[str, int] = {}
    for amounts, pods in gang.sizes:
        for name, amount in amounts:
            total[name] = total.get(name, 0) + amount * pods
    return tuple(sorted(total.items()))


def _as_one_pod(gang: Need) -> Need:
    """The gang as one pod of a plain need: whatever its pods asked of each other is settled by one
    machine, which still has the label that they look for. (Its host name it has in any case.)
    """
    gang_profile, key = gang.profile, gang.profile.same_key
    kept = [r for r in gang_profile.requirements if r.operator is not Operator.SAME]
    if key != HOSTNAME_LABEL:
        kept.append(Requirement(str(key), Operator.EXISTS))
    alone = profile(
        kept,
        (),
        gang_profile.priority,
        gang_profile.interruption_bucket,
        gang_profile.reclamation_bucket,
        alternatives=gang_profile.alternatives,
        tolerations=gang_profile.tolerations,
        never_preempts=gang_profile.never_preempts,
    )
    return Need(alone, (Size(_whole(gang), 1),), FoldedGangs(str(key)), gang.priority_ceiling)


def _joined(sizes: Iterable[Size]) -> tuple[Size, ...]:
    counts: dict[tuple[tuple[str, int], ...], int] = {}
    for amounts, pods in sizes:
        counts[amounts] = counts.get(amounts, 0) + pods
    return tuple(Size(amounts, counts[amounts]) for amounts in sorted(counts))
