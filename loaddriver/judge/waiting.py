"""Pods that still waited when observation ended, and what stood in their way."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten

from loaddriver.judge.facts import ArchetypeFacts, RunFacts, Shortfall
from loaddriver.judge.gates import figure
from loaddriver.judge.room import Room
from loaddriver.record.rows import PodRow

_MOST_OF_MESSAGE = 300
_NAMED_RACKS = 3


@dataclass(frozen=True)
class Waiting:
    """The pods of one archetype that wait in one cluster; `rows` are all of that archetype there.

    `messages` are kube-scheduler's last words by pod UID.
    """

    cluster: str
    archetype: str
    pods: Sequence[PodRow]
    rows: Sequence[PodRow]
    messages: Mapping[str, str]

    @property
    def subject(self) -> str:
        """Who waits, in words."""
        gangs = len({pod.group for pod in self.pods if pod.group})
        of = f" of {_many(gangs, 'gang')}" if gangs else ""
        pods, waits = ("pods", "wait") if len(self.pods) > 1 else ("pod", "waits")
        longest = figure(round(max(pod.waited_seconds for pod in self.pods), 1))
        who = f"{figure(len(self.pods))} {self.archetype} {pods}{of} in {self.cluster}"
        return f"{who} {waits}, the longest for {longest} s"

    @property
    def scheduler(self) -> str:
        """What kube-scheduler says of most of them, or an empty text."""
        said = Counter(self.messages[pod.uid] for pod in self.pods if pod.uid in self.messages)
        if not said:
            return ""
        [(message, count)] = said.most_common(1)
        of = "" if count == len(self.pods) else f" (of {figure(count)})"
        # Its first sentence counts the nodes by what they lack; then it speaks of preemption.
        first, *_ = message.split(". ")
        return f"scheduler{of}: {shorten(first, _MOST_OF_MESSAGE, placeholder=' …').rstrip('.')}"


def waiting_pods(rows: Sequence[PodRow], messages: Mapping[str, str]) -> list[Waiting]:
    """All of them, most pods first."""
    parts: defaultdict[tuple[str, str], list[PodRow]] = defaultdict(list)
    for row in rows:
        parts[row.cluster, row.archetype].append(row)
    found = [
        Waiting(cluster, archetype, waits, of, messages)
        for (cluster, archetype), of in sorted(parts.items())
        if (waits := [r for r in of if r.bound_micros is None and r.deleted_micros is None])
    ]
    return sorted(found, key=lambda each: -len(each.pods))


def sentence(waiting: Waiting, facts: RunFacts, room: Room) -> str:
    """Who waits, what for, and what the scheduler says."""
    parts = [waiting.subject, _cause(waiting, facts, room), waiting.scheduler]
    return f"{'; '.join(part for part in parts if part)}."


def _cause(waiting: Waiting, facts: RunFacts, room: Room) -> str:
    kind = facts.archetypes.get(waiting.archetype)
    free = room.free[waiting.cluster, waiting.archetype]
    if kind is not None and kind.topology == "sameRack":
        racks = _rack_cause(waiting, free)
        if racks:
            return racks
    if facts.fleet is not None and facts.fleet.shares_machines:
        return _request_cause(waiting) or _shared_cause(waiting, facts, room)
    if free.total() >= len(waiting.pods):
        places = _many(free.total(), "free place")
        return f"ready nodes have {places} for them, so it is kube-scheduler that they wait for"
    return (
        _request_cause(waiting)
        or _shortfall_cause(waiting, facts, kind)
        or _machine_cause(waiting, facts, kind, room)
    )


def _rack_cause(waiting: Waiting, free: Counter[str]) -> str:
    """Gangs that cannot end where they began, or have no rack with room for a whole one."""
    wanted = Counter(pod.group for pod in waiting.pods)
    homes = {r.group: r.rack for r in waiting.rows if r.group in wanted and _there(r) and r.rack}
    left, stuck = Counter(free), Counter[str]()
    for group, rack in homes.items():
        stuck[rack] += max(0, wanted[group] - left[rack])
        left[rack] = max(0, left[rack] - wanted[group])
    full = sorted(rack for rack, pods in stuck.items() if pods)
    at_home = sum(free[rack] for rack in full)
    elsewhere = free.total() - at_home
    if full and elsewhere >= stuck.total():
        named = ", ".join(full[:_NAMED_RACKS]) + (", ..." if len(full) > _NAMED_RACKS else "")
        return (
            f"{figure(stuck.total())} must join their gangs in {named}, with "
            f"{_many(at_home, 'free place')}; other racks have {figure(elsewhere)}"
        )
    return "" if homes else _no_rack(free, min(wanted.values()))


def _no_rack(free: Counter[str], smallest_gang: int) -> str:
    largest = max(free.values(), default=0)
    if not largest < smallest_gang <= free.total():
        return ""
    return (
        f"there are {_many(free.total(), 'free place')}, but no rack has more than "
        f"{figure(largest)} and a gang needs {figure(smallest_gang)} in one"
    )


def _request_cause(waiting: Waiting) -> str:
    """Demand that never reached a shard; silent where such stamps are not taken at all."""
    pods = waiting.pods
    unseen = sum(pod.seen_micros is None for pod in pods)
    if 2 * unseen > len(pods) and any(row.seen_micros for row in waiting.rows):
        return f"{figure(unseen)} have no CapacityRequest: the pod controller is behind or refused"
    untold = sum(pod.acknowledged_micros is None for pod in pods)
    if 2 * untold > len(pods) and any(row.acknowledged_micros for row in waiting.rows):
        return f"the requests of {figure(untold)} were never acknowledged: no shard knows of them"
    return ""


def _shared_cause(waiting: Waiting, facts: RunFacts, room: Room) -> str:
    """Machines are everybody's, so no single need is theirs."""
    nodes = room.ready[waiting.cluster, waiting.archetype]
    short = [each for each in facts.shortfalls or () if each.cluster == waiting.cluster]
    told = "no shard could be asked" if facts.shortfalls is None else "no shard says it is short"
    if short:
        verb = "is" if len(short) == 1 else "are"
        told = f"the shard says that {_many(len(short), 'need')} of the cluster {verb} short"
    places = room.free[waiting.cluster, waiting.archetype].total()
    room_there = f"{_many(nodes, 'ready node')} may hold them"
    return f"{room_there}, with {_many(places, 'free place')}, and {told}"


def _shortfall_cause(waiting: Waiting, facts: RunFacts, kind: ArchetypeFacts | None) -> str:
    if kind is None:
        return ""
    ours = [
        each
        for each in facts.shortfalls or ()
        if each.cluster == waiting.cluster and kind.instance_types & set(each.instance_types)
    ]
    if not ours:
        return ""
    return f"capacity is missing: {_missing(ours)}{_fleet(kind)}"


def _missing(shortfalls: Sequence[Shortfall]) -> str:
    first = shortfalls[0]
    amounts = " and ".join(f"{amount} {name}" for name, amount in sorted(first.missing.items()))
    why = f" ({first.reason})" if first.reason else ""
    text = f"the shard lacks {amounts or 'machines'} for it{why}"
    others = len(shortfalls) - 1
    if not others:
        return text
    return f"{text}, and {_many(others, 'more need')} {'is' if others == 1 else 'are'} short"


def _fleet(kind: ArchetypeFacts) -> str:
    if kind.fleet_machines is None:
        return ""
    return f"; the fleet has {_many(kind.fleet_machines, 'machine')} for it"


def _machine_cause(
    waiting: Waiting, facts: RunFacts, kind: ArchetypeFacts | None, room: Room
) -> str:
    place = (waiting.cluster, waiting.archetype)
    if kind is None:
        return ""
    if room.joining[place]:
        return f"{_many(room.joining[place], 'node')} for it joined and did not become ready"
    if kind.fleet_machines is not None and room.nodes_of(waiting.archetype) >= kind.fleet_machines:
        return f"all {figure(kind.fleet_machines)} machines that the fleet has for it are in use"
    silent = "no shard could be asked" if facts.shortfalls is None else "no shard says it is short"
    if not room.ready[place]:
        return f"there is no node for it and {silent}"
    full = "is full" if room.ready[place] == 1 else "are full"
    return f"its {_many(room.ready[place], 'ready node')} there {full} and {silent}"


def _there(row: PodRow) -> bool:
    return row.bound_micros is not None and row.deleted_micros is None


def _many(number: int, what: str) -> str:
    return f"{figure(number)} {what}{'' if number == 1 else 's'}"
