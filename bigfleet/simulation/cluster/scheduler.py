"""A scheduler like kube-scheduler: pod by pod, onto the node with the most free capacity."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bigfleet.engine.fit.matching import accepts, tolerates
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.need import Profile, Spread, Taint
from bigfleet.model.resources import CPU, MEMORY
from bigfleet.simulation.cluster.workload import Workload

_SPREAD_WEIGHT = 2
# TaintToleration's weight is 3, of at most 100 points each.
_SURPLUS_POINTS = 300


@dataclass(eq=False)
class SimulatedNode:
    """A machine that has joined; `free` is what its pods leave of its `allocatable`, in units of
    `model.resources`. `created` is in seconds since 1970. A `leaving` one is being emptied, a
    `dead` one has no machine behind it any more, and new pods prefer others to a `surplus` one.
    """

    name: str
    labels: Mapping[str, str]
    allocatable: Mapping[str, int]
    free: dict[str, int]
    taints: Sequence[Taint] = ()
    created: float = 0.0
    cordoned: bool = False
    leaving: bool = False
    dead: bool = False
    surplus: bool = False

    @property
    def usable(self) -> bool:
        """Whether pods may be bound to it."""
        return not (self.cordoned or self.dead)

    def fits(self, pod: SimulatedPod) -> bool:
        """Whether the pod's requests fit."""
        return all(self.free.get(name, 0) >= amount for name, amount in pod.workload.demand.unit)

    def use(self, pod: SimulatedPod, sign: int) -> None:
        """Subtract (1) or add (-1) the pod's requests from what is free."""
        for name, amount in pod.workload.demand.unit:
            self.free[name] = self.free.get(name, 0) - sign * amount


@dataclass(eq=False)
class SimulatedPod:
    """One pod, `created` in seconds since 1970; `node` is "" until it is bound."""

    name: str
    workload: Workload
    created: float = 0.0
    node: str = field(default="")


def schedule(
    pods: Sequence[SimulatedPod],
    nodes: Mapping[str, SimulatedNode],
    bound: Iterable[SimulatedPod],
    evict: Callable[[SimulatedPod], None],
    *,
    looks_ahead: bool,
) -> Iterator[SimulatedPod]:
    """Bind each of `pods` that fits, by descending priority, then in the order given.

    `SimulatedPod.node` and `SimulatedNode.free` are updated at once. A pod that does not fit may
    preempt pods of lower priority, by `evict`. With `looks_ahead`, a gang starts in a domain with
    room for all of it, as anchors do; kube-scheduler alone starts it where one pod fits.
    """
    assignments = _Assignments(nodes, bound, looks_ahead)
    for pod in sorted(pods, key=lambda p: -p.workload.priority):
        node = assignments.place(pod)
        if node is None:
            node, victims = assignments.preempt(pod)
            for victim in victims:
                assignments.remove(victim)
                evict(victim)
        if node is not None:
            assignments.bind(pod, node)
            yield pod


def is_schedulable(
    pod: SimulatedPod, nodes: Mapping[str, SimulatedNode], bound: Iterable[SimulatedPod]
) -> bool:
    """Whether a pod could be bound now without preemption."""
    return _Assignments(nodes, bound, looks_ahead=False).place(pod) is not None


def adds_domain(
    workload: Workload, node: SimulatedNode, nodes: Mapping[str, SimulatedNode]
) -> bool:
    """Whether the node would be the first of its domain for a hard spread term of the workload,
    hostnames left out.
    """
    assignments = _Assignments(nodes, (), looks_ahead=False)
    return any(
        node.labels.get(term.topology_key) not in assignments.counting_domains(workload, term)
        for term in workload.spread
        if term.hard and term.topology_key != HOSTNAME_LABEL
    )


def runs_on(workload: Workload, node: SimulatedNode) -> bool:
    """Whether the workload's pods select the node and tolerate its taints."""
    profile = workload.demand.profile
    return _selects(profile, node) and tolerates(profile.tolerations, node.taints)


class _Assignments:
    """The pods on each node, and the nodes that a workload may use."""

    def __init__(
        self, nodes: Mapping[str, SimulatedNode], bound: Iterable[SimulatedPod], looks_ahead: bool
    ) -> None:
        self._nodes, self._looks_ahead = nodes, looks_ahead
        self._by_domain: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self._by_node: dict[str, list[SimulatedPod]] = defaultdict(list)
        self._eligible: dict[str, list[SimulatedNode]] = {}
        # Workloads, by app and name, of which a pod did not fit: the next pod does not either.
        self._unschedulable: set[tuple[str, str]] = set()
        for pod in bound:
            self._by_node[pod.node].append(pod)
            self._count(pod, nodes[pod.node])

    def place(self, pod: SimulatedPod) -> SimulatedNode | None:
        """The node for a pod; None if it fits on none."""
        workload = pod.workload
        itself = workload.app_name, workload.name
        if itself in self._unschedulable:
            return None
        fitting = [n for n in self._allowed(workload) if n.fits(pod)]
        if not fitting:
            self._unschedulable.add(itself)
            return None
        if self._looks_ahead and self._begins(workload):
            fitting = self._choose_domain(workload, fitting)
        return min(fitting, key=lambda n: (-self._score(pod, n), n.name))

    def preempt(self, pod: SimulatedPod) -> tuple[SimulatedNode | None, Sequence[SimulatedPod]]:
        """The node on which a pod preempts the least, and the victims there."""
        workload = pod.workload
        if workload.demand.profile.never_preempts:
            return None, ()
        best: tuple[tuple[int, int, str], SimulatedNode, Sequence[SimulatedPod]] | None = None
        for node in self._allowed(workload):
            victims = self._victims(pod, node)
            if victims:
                highest = max(victim.workload.priority for victim in victims)
                key = highest, len(victims), node.name
                if best is None or key < best[0]:
                    best = key, node, victims
        return (None, ()) if best is None else best[1:]

    def bind(self, pod: SimulatedPod, node: SimulatedNode) -> None:
        """Bind the pod to `node`."""
        pod.node = node.name
        node.use(pod, 1)
        self._by_node[node.name].append(pod)
        self._count(pod, node)
        app = pod.workload.app_name
        self._unschedulable = {each for each in self._unschedulable if each[0] != app}

    def remove(self, pod: SimulatedPod) -> None:
        """Remove the pod from its node."""
        node = self._nodes[pod.node]
        self._by_node[node.name].remove(pod)
        self._count(pod, node, -1)
        self._unschedulable.clear()

    def _victims(self, pod: SimulatedPod, node: SimulatedNode) -> Sequence[SimulatedPod]:
        """The pods of lower priority to preempt, lowest and newest first."""
        lower = [p for p in self._by_node[node.name] if p.workload.priority < pod.workload.priority]
        free, victims = Counter(node.free), []
        newest_first = lower[::-1]
        for victim in sorted(newest_first, key=lambda p: p.workload.priority):
            if all(free[name] >= amount for name, amount in pod.workload.demand.unit):
                break
            victims.append(victim)
            free.update(dict(victim.workload.demand.unit))
        enough = all(free[name] >= amount for name, amount in pod.workload.demand.unit)
        return victims if enough else ()

    def _count(self, pod: SimulatedPod, node: SimulatedNode, number: int = 1) -> None:
        for key in pod.workload.topology_keys:
            domains, domain = self._domains(pod.workload, key), node.labels.get(key, "")
            domains[domain] += number
            if not domains[domain]:
                del domains[domain]

    def _domains(self, workload: Workload, key: str) -> Counter[str]:
        """The number of pods of the workload's app in each domain."""
        return self._by_domain[workload.app_name, key]

    def _begins(self, workload: Workload) -> bool:
        return bool(workload.same_key) and not self._domains(workload, workload.same_key)

    def _affine(self, workload: Workload) -> list[SimulatedNode]:
        """The nodes that the workload selects, regardless of taints."""
        if workload.name not in self._eligible:
            profile = workload.demand.profile
            nodes = [n for n in self._nodes.values() if _selects(profile, n)]
            self._eligible[workload.name] = nodes
        return self._eligible[workload.name]

    def _allowed(self, workload: Workload) -> list[SimulatedNode]:
        """The nodes that the workload's next pod may use, regardless of free capacity."""
        profile = workload.demand.profile
        nodes = self._affine(workload)
        allowed = [n for n in nodes if n.usable and tolerates(profile.tolerations, n.taints)]
        if workload.same_key and (domains_used := self._domains(workload, workload.same_key)):
            allowed = [n for n in allowed if n.labels.get(workload.same_key) in domains_used]
        for key in profile.anti_affinity:
            taken = self._domains(workload, key)
            allowed = [n for n in allowed if not taken[n.labels.get(key, "")]]
        for term in workload.spread:
            if term.hard:
                allowed = self._within_skew(workload, term, allowed)
        return allowed

    def counting_domains(self, workload: Workload, term: Spread) -> set[str]:
        """The domains whose Nodes count for the minimum of a hard spread term."""
        nodes = [*self._nodes.values()] if term.ignores_node_affinity else self._affine(workload)
        if term.honors_node_taints:
            tolerations = workload.demand.profile.tolerations
            nodes = [n for n in nodes if n.usable and tolerates(tolerations, n.taints)]
        key = term.topology_key
        return {n.labels[key] for n in nodes if key in n.labels}

    def _within_skew(
        self, workload: Workload, term: Spread, allowed: list[SimulatedNode]
    ) -> list[SimulatedNode]:
        key = term.topology_key
        counts, domains = self._domains(workload, key), self.counting_domains(workload, term)
        enough = len(domains) >= term.min_domains
        least = min((counts[domain] for domain in domains), default=0) if enough else 0
        most = least + term.max_skew
        return [n for n in allowed if key in n.labels and counts[n.labels[key]] < most]

    def _score(self, pod: SimulatedPod, node: SimulatedNode) -> int:
        """kube-scheduler's scores at their default weights: LeastAllocated, BalancedAllocation,
        PodTopologySpread and TaintToleration.
        """
        asked = dict(pod.workload.demand.unit)
        parts = [
            (node.free[name] - asked.get(name, 0)) / node.allocatable[name]
            for name in (CPU, MEMORY)
            if node.allocatable.get(name)
        ]
        least_allocated = int(100 * sum(parts) / max(1, len(parts)))
        balance = int(100 * (1 - (max(parts, default=0.0) - min(parts, default=0.0)) / 2))
        spread = _SPREAD_WEIGHT * self._evenness(pod.workload, node)
        return least_allocated + balance + spread - _SURPLUS_POINTS * node.surplus

    def _evenness(self, workload: Workload, node: SimulatedNode) -> int:
        soft = [term.topology_key for term in workload.spread if not term.hard]
        if not soft:
            return 0
        counts = [self._domains(workload, key) for key in soft]
        pods = sum(c[node.labels.get(key, "")] for c, key in zip(counts, soft, strict=True))
        most = sum(max(c.values(), default=0) for c in counts)
        return 100 - 100 * pods // most if most else 100

    @staticmethod
    def _choose_domain(workload: Workload, nodes: list[SimulatedNode]) -> list[SimulatedNode]:
        """The first pod of a gang decides for all: it goes to the tightest domain that holds them,
        or else to the roomiest.
        """
        free_slots: Counter[str] = Counter()
        for node in nodes:
            sizes = [(node.free.get(r, 0), amount) for r, amount in workload.demand.unit if amount]
            free_slots[node.labels[workload.same_key]] += min(
                free // amount for free, amount in sizes
            )
        enough = [domain for domain in free_slots if free_slots[domain] >= workload.replicas]
        best = (
            min(enough, key=lambda domain: (free_slots[domain], domain))
            if enough
            else min(free_slots, key=lambda domain: (-free_slots[domain], domain))
        )
        return [node for node in nodes if node.labels[workload.same_key] == best]


def _selects(profile: Profile, node: SimulatedNode) -> bool:
    """Whether the node's labels meet node selector and node affinity."""
    alternatives = profile.alternatives
    return accepts(profile.requirements, node.labels) and (
        not alternatives or any(accepts(term, node.labels) for term in alternatives)
    )
