"""A scheduler that packs: each pod goes to the fullest node that has room and may take it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bigfleet.engine.matching import accepts
from bigfleet.simulation.workload import Workload


@dataclass(eq=False)
class Node:
    """A machine that has joined; `free` is what its pods leave, in units of `model.resources`. A
    `dead` one has no machine behind it any more.
    """

    name: str
    labels: Mapping[str, str]
    free: dict[str, int]
    cordoned: bool = False
    dead: bool = False

    @property
    def usable(self) -> bool:
        """Whether pods may be bound to it."""
        return not (self.cordoned or self.dead)

    def has_room(self, pod: Pod) -> bool:
        """Whether the pod's whole request is free here."""
        return all(self.free.get(name, 0) >= amount for name, amount in pod.workload.demand.unit)

    def use(self, pod: Pod, sign: int) -> None:
        """Take (1) or give back (-1) what the pod asks for."""
        for name, amount in pod.workload.demand.unit:
            self.free[name] = self.free.get(name, 0) - sign * amount


@dataclass(eq=False)
class Pod:
    """One pod; `node` is "" until it is bound."""

    name: str
    workload: Workload
    node: str = field(default="")


def bindings(
    pods: Sequence[Pod], nodes: Mapping[str, Node], bound: Iterable[Pod], *, looks_ahead: bool
) -> Iterable[tuple[Pod, Node]]:
    """Bind each of `pods` that finds a place: priority descending, then in the order given.

    Places are taken as they are given out: `Pod.node` and `Node.free` change at once. One that
    `looks_ahead` begins a gang where there is room for all of it, as anchors do; kube-scheduler
    alone begins it where there is room for one.
    """
    board = _Board(nodes, bound, looks_ahead)
    for pod in sorted(pods, key=lambda p: -p.workload.priority):
        node = board.place(pod)
        if node is not None:
            board.bind(pod, node)
            yield pod, node


class _Board:
    """Which workload has how many pods in which domain, and which nodes it may use at all."""

    def __init__(self, nodes: Mapping[str, Node], bound: Iterable[Pod], looks_ahead: bool) -> None:
        self._nodes, self._looks_ahead = nodes, looks_ahead
        self._by_domain: dict[tuple[str, str], Counter[str]] = {}
        self._eligible: dict[str, list[Node]] = {}
        # A workload that found no place finds none for its next pod either.
        self._hopeless: set[str] = set()
        for pod in bound:
            self._count(pod, nodes[pod.node])

    def place(self, pod: Pod) -> Node | None:
        name = pod.workload.name
        if name in self._hopeless:
            return None
        fitting = [n for n in self._allowed(pod.workload) if n.has_room(pod)]
        if not fitting:
            self._hopeless.add(name)
            return None
        begins = pod.workload.same_key and not self._domains(pod.workload, pod.workload.same_key)
        if begins and self._looks_ahead:
            fitting = self._home(pod.workload, fitting)
        return min(fitting, key=lambda n: (n.free.get("cpu", 0), n.name))

    def bind(self, pod: Pod, node: Node) -> None:
        pod.node = node.name
        node.use(pod, 1)
        self._count(pod, node)

    def _count(self, pod: Pod, node: Node) -> None:
        workload = pod.workload
        for key in {workload.same_key, *(t.topology_key for t in workload.spread)} - {""}:
            self._domains(workload, key)[node.labels.get(key, "")] += 1

    def _domains(self, workload: Workload, key: str) -> Counter[str]:
        return self._by_domain.setdefault((workload.name, key), Counter())

    def _allowed(self, workload: Workload) -> list[Node]:
        nodes = self._eligible.get(workload.name)
        if nodes is None:
            requirements = workload.demand.profile.requirements
            nodes = [n for n in self._nodes.values() if accepts(requirements, n.labels)]
            self._eligible[workload.name] = nodes
        allowed = [node for node in nodes if node.usable]
        if workload.same_key and (homes := self._domains(workload, workload.same_key)):
            allowed = [n for n in allowed if n.labels.get(workload.same_key) in homes]
        for term in workload.spread:
            if term.hard:
                allowed = self._balanced(workload, term.topology_key, term.max_skew, nodes, allowed)
        return allowed

    def _balanced(
        self, workload: Workload, key: str, max_skew: int, nodes: list[Node], allowed: list[Node]
    ) -> list[Node]:
        counts = self._domains(workload, key)
        least = min((counts[n.labels[key]] for n in nodes if key in n.labels), default=0)
        most = least + max_skew - 1
        return [n for n in allowed if key in n.labels and counts[n.labels[key]] <= most]

    @staticmethod
    def _home(workload: Workload, nodes: list[Node]) -> list[Node]:
        """The first pod of a gang decides for all: it goes to the tightest domain that holds them,
        or else to the roomiest.
        """
        rooms: Counter[str] = Counter()
        for node in nodes:
            sizes = [(node.free.get(r, 0), amount) for r, amount in workload.demand.unit if amount]
            rooms[node.labels[workload.same_key]] += min(free // amount for free, amount in sizes)
        enough = [domain for domain in rooms if rooms[domain] >= workload.replicas]
        best = (
            min(enough, key=lambda domain: (rooms[domain], domain))
            if enough
            else min(rooms, key=lambda domain: (-rooms[domain], domain))
        )
        return [node for node in nodes if node.labels[workload.same_key] == best]
