"""Which machines serve no new pods, derived from their Nodes. Pure.

| the Node | counts as serving | from |
|---|---|---|
| is cordoned | what runs there | at once |
| has a taint that is neither its machine's nor transient | what runs there | at once; on a new Node after the timeout, because many Nodes join with a taint |
| is not Ready | nothing; the machine is broken | after the timeout |
| is not Ready, as are more than a fifth of all | what runs there | after the timeout |
| is missing | nothing; the machine is broken | at once if it was deleted; else after the timeout |

Nodes that the operator cordoned for a review do not count as cordoned. Nodes that are being
reclaimed are ignored.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from bigfleet.api.limit_codec import LimitReason
from bigfleet.controllers.operator.node_types import Node, NodeTaint
from bigfleet.kube.types import TRANSIENT_TAINT_PREFIXES

_REPELLING_EFFECTS = ("NoSchedule", "NoExecute")
# If more Nodes than this are not Ready at once, the network is at fault rather than the machines.
_MIN_AWAY, _AWAY_SHARE = 3, 0.2

# The machines that the shard reports as serving this cluster, with their own taints where known.
Machines = Mapping[str, Collection[NodeTaint] | None]


@dataclass(frozen=True)
class UnfitMachine:
    """A machine that serves no new pods. `counts_pods`: what runs there still counts as served."""

    machine_id: str
    reason: LimitReason
    message: str
    counts_pods: bool = True
    broken: bool = False


class NodeHealth:
    """The Nodes of BigFleet's machines, and since when each is not ready or missing."""

    def __init__(self, ready_timeout_seconds: float) -> None:
        self._ready_timeout_seconds = ready_timeout_seconds
        self._nodes: dict[str, Node] = {}
        self._deleted: set[str] = set()
        self._not_ready_since: dict[str, float] = {}
        self._missing_since: dict[str, float] = {}

    def put(self, node: Node) -> bool:
        """Add or update a Node; return whether a relevant part of it changed."""
        before = self._nodes.get(node.metadata.name)
        self._nodes[node.metadata.name] = node
        self._deleted.discard(node.machine)
        return before is None or _fingerprint(before) != _fingerprint(node)

    def remove(self, name: str, machines: Machines) -> None:
        """Remove a Node. It counts as deleted unless its machine left service or was reclaimed."""
        node = self._nodes.pop(name, None)
        if node is not None and node.machine in machines and node.reclaim_deadline is None:
            self._deleted.add(node.machine)

    def names(self) -> list[str]:
        """The names of all Nodes."""
        return list(self._nodes)

    def orphaned_nodes(self) -> list[Node]:
        """Nodes whose machine label differs from their name."""
        return [node for node in self._nodes.values() if node.not_owned_reason]

    def forget(self, machine_id: str) -> None:
        """Reset what is known of a machine that joins again."""
        self._deleted.discard(machine_id)
        self._missing_since.pop(machine_id, None)

    def ours(self) -> Iterator[Node]:
        """The Nodes whose machine label is their name."""
        return (node for node in self._nodes.values() if not node.not_owned_reason)

    def unfit_machines(self, machines: Machines, now: float, unix_now: float) -> list[UnfitMachine]:
        """The machines among `machines` that serve no new pods; `now` in monotonic seconds."""
        self._note_not_ready(now)
        self._note_missing(machines, now)
        cut_off = self._is_cut_off()
        found = list(self._missing(now))
        for name, own in machines.items():
            node = self._nodes.get(name)
            if node is None or node.not_owned_reason or node.reclaim_deadline is not None:
                continue
            unfit = self._not_ready(name, now, cut_off=cut_off)
            if unfit is None and node.spec.unschedulable and not node.under_review:
                unfit = UnfitMachine(name, LimitReason.CORDONED, "spec.unschedulable is set")
            found += [each for each in (unfit or self._tainted(node, own, unix_now),) if each]
        return found

    def _note_not_ready(self, now: float) -> None:
        away = {name for name, node in self._nodes.items() if not node.ready}
        self._not_ready_since = {name: self._not_ready_since.get(name, now) for name in away}

    def _note_missing(self, machines: Machines, now: float) -> None:
        away = machines.keys() - self._nodes.keys()
        self._missing_since = {name: self._missing_since.get(name, now) for name in away}
        self._deleted &= away

    def _is_cut_off(self) -> bool:
        away = len(self._not_ready_since)
        return away >= _MIN_AWAY and away > _AWAY_SHARE * len(self._nodes)

    def _missing(self, now: float) -> Iterator[UnfitMachine]:
        for name, since in self._missing_since.items():
            if name in self._deleted:
                why = "its Node was deleted"
            elif now - since >= self._ready_timeout_seconds:
                why = f"it has had no Node for {self._ready_timeout_seconds:g} s"
            else:
                continue
            yield UnfitMachine(name, LimitReason.MISSING, why, counts_pods=False, broken=True)

    def _not_ready(self, name: str, now: float, *, cut_off: bool) -> UnfitMachine | None:
        since = self._not_ready_since.get(name, now)
        if name not in self._not_ready_since or now - since < self._ready_timeout_seconds:
            return None
        why = f"for more than {self._ready_timeout_seconds:g} s"
        if cut_off:
            away, total = len(self._not_ready_since), len(self._nodes)
            why = f"{why}, like {away} of {total} Nodes, too many to be broken"
        return UnfitMachine(
            name, LimitReason.NOT_READY, why, counts_pods=cut_off, broken=not cut_off
        )

    def _tainted(
        self, node: Node, own: Collection[NodeTaint] | None, unix_now: float
    ) -> UnfitMachine | None:
        if not (repelling := _repelling_taints(node)) or own is None:
            return None
        created = node.metadata.creation_timestamp
        is_new = created is None or unix_now - created.timestamp() < self._ready_timeout_seconds
        unexpected = [
            taint
            for taint in repelling
            if not taint.key.startswith(TRANSIENT_TAINT_PREFIXES) and taint not in own
        ]
        if is_new or not unexpected:
            return None
        why = ", ".join(map(str, unexpected))
        return UnfitMachine(node.metadata.name, LimitReason.TAINTED, why)


def _fingerprint(node: Node) -> object:
    """All that `NodeHealth` reads of a Node."""
    taints = tuple(_repelling_taints(node))
    owned = node.reclaim_deadline, node.under_review, node.not_owned_reason
    return node.metadata.uid, node.ready, node.spec.unschedulable, taints, owned


def _repelling_taints(node: Node) -> list[NodeTaint]:
    """Those that keep pods away, sorted: not what merely makes pods prefer other Nodes."""
    return sorted(each for each in node.spec.taints or () if each.effect in _REPELLING_EFFECTS)
