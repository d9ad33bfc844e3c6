"""Checks that a fault-free fleet neither releases what it needs nor flaps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bigfleet.engine.checks.need_invariants import capacity
from bigfleet.engine.decision import Action, ActionType
from bigfleet.engine.fit.matching import accepts_machine
from bigfleet.engine.snapshot import NONE, Flavour
from bigfleet.model.group import ADDITIONAL
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Need, NeedKey
from bigfleet.services.shard.decide.compute import CycleResult
from bigfleet.simulation.cluster.cluster import SimulatedCluster

SOON_SECONDS = 600.0
# An operator has accepted or refused a reclaim by then.
_ANSWERED_SECONDS = 30.0
# After the first, the engine holds longer, which must suffice.
_MAX_REBUYS = 2
_ACQUIRING = (ActionType.BOOTSTRAP, ActionType.PROVISION)


class _Acquired(NamedTuple):
    """When a machine was acquired, for which need as it was then, and beside how many machines of
    its shard.
    """

    since: float
    key: NeedKey
    need: Need
    machines: int


class Steadiness:
    """Checks the decisions of a fault-free world; `grows` if its demand never shrinks.

    `check` takes the decisions of one shard in their order.
    """

    def __init__(self, clusters: Mapping[str, SimulatedCluster], *, grows: bool) -> None:
        self._clusters, self._grows = clusters, grows
        self._acquired: dict[str, _Acquired] = {}
        # By cluster, when its pods got which machines beyond those that its needs are counted on.
        self._beyond: dict[str, list[tuple[float, Flavour]]] = {}
        # Machines whose drain has been ordered, as long as their operators may refuse it.
        self._leaving: set[str] = set()
        self._released: dict[str, list[tuple[float, Flavour]]] = {}
        self._lost: dict[str, float] = {}
        self._rebuys: Counter[str] = Counter()
        self._suspected: dict[str, tuple[float, str, Sequence[str]]] = {}
        self._backed_off: frozenset[tuple[str, int]] = frozenset()
        self._backed_off_seconds = 0.0

    def check(self, result: CycleResult) -> Iterator[str]:
        """Problems of a decision, given the earlier ones, as sentences."""
        yield from self._unjustified_drains(result.inputs.now_seconds)
        self._note_backoff(result)
        self._note_refused(result)
        bought: dict[str, list[Need]] = {}
        together = _decided_together(result)
        for action in result.decision.actions:
            if action.type in _ACQUIRING:
                name, key = result.machine_id(action.row), result.keys[action.need]
                need, before = result.demand.needs[action.need], self._acquired.get(name)
                if need.group == ADDITIONAL:
                    of_machine = result.inputs.now_seconds, _flavour(result, action.row)
                    self._beyond.setdefault(key.cluster, []).append(of_machine)
                if before is None or before.key.cluster != key.cluster:
                    bought.setdefault(key.cluster, []).append(need)
                    if key.cluster not in together:
                        self._acquired[name] = _Acquired(
                            result.inputs.now_seconds, key, need, len(result.fleet)
                        )
            elif action.need != NONE:
                self._note_taken(result, action)
            else:
                yield from self._given_back(result, action)
        for cluster, needs in sorted(bought.items()):
            yield from self._bought(result, cluster, needs)

    def _note_backoff(self, result: CycleResult) -> None:
        """Note when machines begin or end to be in backoff: then others may serve better."""
        fleet, rows = result.fleet, np.arange(len(result.fleet))
        backed_off = frozenset(
            (result.machine_id(row), cluster)
            for cluster in range(len(fleet.clusters))
            for row in np.flatnonzero(fleet.backs_off(cluster, rows)).tolist()
        )
        if backed_off != self._backed_off:
            self._backed_off, self._backed_off_seconds = backed_off, result.inputs.now_seconds

    def _note_refused(self, result: CycleResult) -> None:
        """Note machines that stay although their drain was ordered: pods run there by now."""
        if not self._leaving:
            return
        fleet = result.fleet
        for row in np.flatnonzero(fleet.state != MachineState.DRAINING).tolist():
            name = result.machine_id(row)
            if name in self._leaving and fleet.state[row] == MachineState.CONFIGURED:
                stays = result.inputs.now_seconds, _flavour(result, row)
                cluster = fleet.clusters[int(fleet.cluster[row])]
                self._beyond.setdefault(cluster, []).append(stays)
            self._leaving.discard(name)

    def _bought(self, result: CycleResult, cluster: str, needs: Sequence[Need]) -> Iterator[str]:
        """Count a purchase for needs that machines released shortly before could have served."""
        now, again = result.inputs.now_seconds, False
        changed = max(self._clusters[cluster].grew_seconds, self._lost.get(cluster, 0.0))
        recent = [
            (at, flavour)
            for at, flavour in self._released.pop(cluster, ())
            if now - at < SOON_SECONDS and changed < at
        ]
        for at, flavour in recent:
            if any(_could_serve(result, cluster, flavour, need) for need in needs):
                again = True
            else:
                self._released.setdefault(cluster, []).append((at, flavour))
        self._rebuys[cluster] += again
        if again and self._rebuys[cluster] > _MAX_REBUYS:
            number = self._rebuys[cluster]
            yield f"{cluster} has reacquired what it released {number} times"

    def _unjustified_drains(self, now: float) -> Iterator[str]:
        """Suspected drains that were executed: operators reject those that would disrupt pods."""
        for name, (since, cluster, sentences) in list(self._suspected.items()):
            node = self._clusters[cluster].nodes.get(name)
            if node is None or node.leaving:
                yield from sentences
            if node is None or node.leaving or now - since > _ANSWERED_SECONDS:
                del self._suspected[name]

    def _suspect(self, result: CycleResult, action: Action, cluster: str, *sentences: str) -> None:
        """Report the `sentences` that are not empty once the machine is drained by this action."""
        name, found = result.machine_id(action.row), [each for each in sentences if each]
        self._leaving.add(name)
        self._suspected.pop(name, None)
        if found:
            self._suspected[name] = result.inputs.now_seconds, cluster, found

    def _note_taken(self, result: CycleResult, action: Action) -> None:
        name, need = result.machine_id(action.row), result.demand.needs[action.need]
        cluster = result.fleet.clusters[int(result.fleet.cluster[action.row])]
        self._lost[cluster] = result.inputs.now_seconds
        self._acquired.pop(name, None)
        equals = [
            pod.workload.name
            for pod in self._clusters[cluster].pods_on(name)
            if pod.workload.priority >= need.profile.priority
        ]
        why = ""
        if equals and self._grows and action.type is ActionType.RECLAIM:
            why = (
                f"{name} is taken from {cluster}, where pods of {equals[0]} have no lower priority"
            )
        self._suspect(result, action, cluster, why)

    def _given_back(self, result: CycleResult, action: Action) -> Iterator[str]:
        name, now = result.machine_id(action.row), result.inputs.now_seconds
        acquired = self._acquired.pop(name, None)
        if result.fleet.state[action.row] == MachineState.FAILED:
            return
        needless = ""
        if acquired is not None and not self._explained(result, acquired):
            cluster = acquired.key.cluster
            needless = f"{name} was acquired for {cluster} and is released without a reason"
        if action.type is not ActionType.RECLAIM:
            if needless:
                yield needless
            return
        owner = result.fleet.clusters[int(result.fleet.cluster[action.row])]
        self._released.setdefault(owner, []).append((now, _flavour(result, action.row)))
        # A gang that outgrows its domain moves to another one, with all that runs beside its pods.
        running = self._clusters[owner].pods_on(name)
        if _is_left_by_gang(result, action) and any(p.workload.same_key for p in running):
            running = []
        why = f"{name} is reclaimed with {len(running)} pods in {owner}, which only grows"
        self._suspect(result, action, owner, why if running and self._grows else "", needless)

    def _explained(self, result: CycleResult, acquired: _Acquired) -> bool:
        """Whether anything has happened since a machine was acquired that explains its release."""
        since, key, need, machines = acquired
        if result.inputs.now_seconds - since >= SOON_SECONDS:
            return True
        # A machine of a rack that has come from another shard may serve better.
        if self._changed_seconds(result, key.cluster) > since or len(result.fleet) > machines:
            return True
        # What a pod cannot use although it is counted there, it asks for later, and there may be
        # room for others beside it; or it is bound elsewhere and asks no more.
        if need.group == ADDITIONAL and _pods_of(result, key) < need.pods:
            return True
        return any(
            at > since and _could_serve(result, key.cluster, flavour, need)
            for at, flavour in self._beyond.get(key.cluster, ())
        )

    def _changed_seconds(self, result: CycleResult, cluster: str) -> float:
        """When the cluster's demand last changed, or its shard learned that it had, or which
        machines are available changed.
        """
        home, demand = self._clusters[cluster], result.demand
        number = result.fleet.clusters.index(cluster)
        learned = (seen.get(number, 0.0) for seen in (demand.rose_seconds, demand.fell_seconds))
        return max(home.shrank_seconds, home.grew_seconds, self._backed_off_seconds, *learned)


def _decided_together(result: CycleResult) -> set[str]:
    """The clusters for which the decision acquires machines without knowing what room others of its
    machines leave: those that it acquires for later needs, and those that it takes from others.
    """
    found: set[str] = set()
    actions = [action for action in result.decision.actions if action.need != NONE]
    buyers = {action.need for action in actions if action.type in _ACQUIRING}
    for cluster, needs in Counter(result.keys[need].cluster for need in buyers).items():
        if needs > 1:
            found.add(cluster)
    taking = (action.need for action in actions if action.type not in _ACQUIRING)
    return found | {result.keys[need].cluster for need in taking}


def _is_left_by_gang(result: CycleResult, action: Action) -> bool:
    """Whether a gang claimed the machine before this decision, which no longer counts with it."""
    last = int(result.fleet.last_claimed_by[action.row])
    return last != NONE and result.demand.needs[last].profile.same_key is not None


def _flavour(result: CycleResult, row: int) -> Flavour:
    flavour: Flavour = result.fleet.flavours[result.fleet.flavour[row]]
    return flavour


def _pods_of(result: CycleResult, key: NeedKey) -> int:
    """How many pods the need with this key has now."""
    return result.demand.needs[result.keys.index(key)].pods if key in result.keys else 0


def _could_serve(result: CycleResult, cluster: str, flavour: Flavour, need: Need) -> bool:
    """Whether a machine of `flavour` takes a pod of the need."""
    room = capacity(result.demand, flavour, result.fleet.clusters.index(cluster))
    return accepts_machine(need.profile, flavour) and any(
        all(amount <= room.get(name, 0) for name, amount in size.amounts) for size in need.sizes
    )
