"""Rules about single machines, in plain Python, for the slow decision of `engine_oracle`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bigfleet.engine.snapshot import NONE, Fleet
from bigfleet.model import penalty
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.model.need import Need, Operator, Requirement

Amounts = dict[str, int]
_EVERYWHERE = ("cpu", "memory", "pods", "ephemeral-storage", "storage")


@dataclass
class Host:
    """One machine of the fleet."""

    row: int
    state: MachineState
    cluster: int
    wanted_by: int
    priority: int
    interruption: int
    bucket: int
    idle_since: float
    tie_break: int
    labels: Mapping[str, str]
    capacity_type: CapacityType
    price: float
    probability: float
    allocatable: Mapping[str, int]
    claimed_by: int = NONE
    kept_for: int = NONE


def hosts_of(fleet: Fleet) -> list[Host]:
    """The fleet, row by row."""
    hosts = []
    for row in range(len(fleet)):
        kind = fleet.flavours[fleet.flavour[row]]
        hosts.append(
            Host(
                row,
                MachineState(int(fleet.state[row])),
                int(fleet.cluster[row]),
                int(fleet.wanted_by[row]),
                int(fleet.priority[row]),
                int(fleet.interruption_bucket[row]),
                int(fleet.reclamation_bucket[row]),
                float(fleet.unused_since_seconds[row]),
                int(fleet.tie_break[row]),
                kind.labels,
                kind.capacity_type,
                kind.price_per_hour,
                kind.interruption_probability,
                kind.allocatable,
            )
        )
    return hosts


def meets(host: Host, requirement: Requirement) -> bool:
    """Kubernetes semantics, operator by operator."""
    there = requirement.key in host.labels
    value = host.labels.get(requirement.key)
    return {
        Operator.IN: there and value in requirement.values,
        Operator.NOT_IN: not there or value not in requirement.values,
        Operator.EXISTS: there,
        Operator.DOES_NOT_EXIST: not there,
        Operator.SAME: there,
    }[requirement.operator]


def holds(host: Host, need: Need) -> Amounts:
    """What a machine holds of a need; empty when it does not hold the unit once."""
    times = None
    for name, size in need.largest.items():
        if size > 0:
            fit = host.allocatable.get(name, 0) // size
            times = fit if times is None else min(times, fit)
    held: Amounts = {}
    for name, amount in need.aggregate.items():
        if amount > 0:
            size = need.largest.get(name, 0)
            whole = times is not None and size > 0
            held[name] = int(times or 0) * size if whole else host.allocatable.get(name, 0)
    return {} if times == 0 else held


def spread_terms(need: Need) -> list[tuple[str, int]]:
    """Hard terms, unless the need wants one domain."""
    if any(r.operator is Operator.SAME for r in need.profile.requirements):
        return []
    return [(term.topology_key, term.max_skew) for term in need.profile.spread if term.hard]


def suitable(host: Host, need: Need) -> bool:
    """Whether the machine may serve the need at all."""
    return (
        all(meets(host, requirement) for requirement in need.profile.requirements)
        and all(key in host.labels for key, _ in spread_terms(need))
        and any(amount > 0 for amount in holds(host, need).values())
    )


def cost(host: Host, need: Need) -> float:
    """Dollars per hour, with the risk of interruption."""
    bucket = need.profile.interruption_bucket
    if bucket == penalty.PINNED:
        return math.inf if host.probability > 0 else host.price
    return host.price + host.probability * penalty.dollars(bucket)


def per_unit(host: Host, need: Need, missing: Amounts) -> float:
    """Cost by the share of the missing that the machine serves, in single precision."""
    held = holds(host, need)
    share = min(min(held[name], left) / left for name, left in missing.items() if left > 0)
    return float(np.float32(cost(host, need) / share)) if share > 0 else math.inf


def last_resort(host: Host, need: Need) -> int:
    """0 for plain machines, 1 for unasked scarce resources, 2 and 3 when never worth it."""
    asked = {n for amounts in (need.aggregate, need.largest) for n, a in amounts.items() if a > 0}
    unasked = any(
        amount > 0
        and name not in asked
        and name not in _EVERYWHERE
        and not name.startswith("hugepages-")
        for name, amount in host.allocatable.items()
    )
    return 2 * math.isinf(cost(host, need)) + unasked


def release_order(host: Host) -> tuple[float, int, int]:
    """Dearest first."""
    return -host.price, host.bucket, host.tie_break


def useful(host: Host, need: Need, missing: Amounts) -> bool:
    """Whether the machine holds anything that is missing."""
    return any(left > 0 and holds(host, need)[name] > 0 for name, left in missing.items())


def covers(host: Host, need: Need, missing: Amounts) -> bool:
    """Whether the machine alone is enough."""
    return all(holds(host, need)[name] >= left for name, left in missing.items())


def grace(gap: int) -> int:
    """Seconds that the pods of a victim get."""
    if gap > 900_000:
        return 10
    if gap > 500_000:
        return 30
    return 120 if gap > 100_000 else 600


def home_key(need: Need) -> str | None:
    """The domain key of a gang, though it may be folded into a plain need."""
    if need.group.startswith("folded:"):
        return need.group.split(":")[1]
    return next((r.key for r in need.profile.requirements if r.operator is Operator.SAME), None)


Rank = Callable[[Host], float]


def fitting(peers: Sequence[Host], need: Need, missing: Amounts, rank: Rank) -> Host:
    """The best-ranked machine that is enough, of equals the smallest, then the first."""
    enough = [host for host in peers if covers(host, need, missing)]

    def size(host: Host) -> float:
        held = holds(host, need)
        return sum(held[name] / left for name, left in missing.items() if left > 0)

    return min(enough, key=lambda host: (rank(host), size(host)))


def thinned(bought: list[Host], need: Need, missing: Amounts, rank: Rank) -> list[Host]:
    """Without machines that the others make superfluous, the worst-ranked dropped first."""
    kept = list(bought)
    latest_first = bought[::-1]
    for host in sorted(latest_first, key=lambda h: -rank(h)):
        others = [other for other in kept if other is not host]
        if all(sum(holds(h, need)[n] for h in others) >= left for n, left in missing.items()):
            kept = others
    return kept


def spread_rule(
    terms: Sequence[tuple[str, int]], held: Sequence[Host], free: Sequence[Host]
) -> Callable[[Host, Sequence[Host]], bool]:
    """Tells whether one more machine in a host's domains keeps the skew."""

    def allowed(host: Host, bought: Sequence[Host]) -> bool:
        for key, skew in terms:
            count = {other.labels[key]: 0 for other in (*held, *free)}
            for other in (*held, *bought):
                count[other.labels[key]] += 1
            if count[host.labels[key]] > min(count.values()) + skew - 1:
                return False
        return True

    return allowed


@dataclass(frozen=True)
class Pool:
    """What a gang could get: counted already, free, used by nobody, used by others."""

    ours: Sequence[Host]
    free: Sequence[Host]
    spare: Sequence[Host] = ()
    used: Sequence[Host] = ()


def best_domain(
    key: str, index: int, need: Need, pool: Pool, kept: str | None
) -> tuple[str | None, bool]:
    """The domain of a gang, and whether it holds all of it."""
    want = {name: amount for name, amount in sorted(need.aggregate.items()) if amount > 0}
    gentle = [*pool.ours, *pool.free, *pool.spare]
    everyone = [*gentle, *pool.used]

    def coverage(hosts: Sequence[Host], domain: str, *, capped: bool) -> float:
        score = 0.0
        for name, amount in want.items():
            have = sum(holds(h, need)[name] for h in hosts if h.labels[key] == domain)
            score += (min(have, amount) if capped else have) / amount
        return score

    def whole(domain: str) -> bool:
        inside = [host for host in everyone if host.labels[key] == domain]
        return all(sum(holds(h, need)[n] for h in inside) >= a for n, a in want.items())

    def merit(domain: str) -> tuple[object, ...]:
        count = sum(host.labels[key] == domain for host in everyone)
        credited = -coverage(pool.ours, domain, capped=True)
        own = [host for host in pool.ours if host.wanted_by == index]
        incumbent = -coverage(own, domain, capped=True)
        if whole(domain):
            freely = -coverage(gentle, domain, capped=True)
            least = coverage(everyone, domain, capped=False)
            return 0, domain != kept, freely, credited, incumbent, least, -count, domain
        joint = -coverage(everyone, domain, capped=True)
        return 1, joint, incumbent, credited, -count, domain

    best = min({host.labels[key] for host in everyone}, key=merit, default=None)
    return best, best is not None and whole(best)
