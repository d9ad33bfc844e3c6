"""Pods that waited when observation ended, and the cause."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten

from loaddriver.judge.facts import ArchetypeFacts, RunFacts, Shortfall
from loaddriver.judge.free_capacity import FreeCapacity
from loaddriver.judge.gates import format_number
from loaddriver.record.rows import PodRow

_MOST_OF_MESSAGE = 300
_NAMED_RACKS = 3


@dataclass(frozen=True)
class Waiting:
    """The pods of one archetype that wait in one cluster; `rows` are all of that archetype there.

    `messages` are kube-scheduler's last messages by pod UID.
    """

    cluster: str
    archetype: str
    pods: Sequence[PodRow]
    rows: Sequence[PodRow]
    messages: Mapping[str, str]

    @property
    def subject(self) -> str:
        """The waiting pods, as the subject of a sentence."""
        gangs = len({pod.group for pod in self.pods if pod.group})
        of = f" of {_counted(gangs, 'gang')}" if gangs else ""
        pods, waits = ("pods", "wait") if len(self.pods) > 1 else ("pod", "waits")
        longest = format_number(round(max(pod.waited_seconds for pod in self.pods), 1))
        who = f"{format_number(len(self.pods))} {self.archetype} {pods}{of} in {self.cluster}"
        return f"{who} {waits}, the longest for {longest} s"

    @property
    def scheduler(self) -> str:
        """kube-scheduler's most frequent message, or ""."""
        messages = Counter(self.messages[pod.uid] for pod in self.pods if pod.uid in self.messages)
        if not messages:
            return ""
        [(message, count)] = messages.most_common(1)
        of = "" if count == len(self.pods) else f" (of {format_number(count)})"
        # The first sentence counts nodes by reason; the rest is about preemption.
        first, *_ = message.split(". ")
        return f"scheduler{of}: {shorten(first, _MOST_OF_MESSAGE, placeholder=' …').rstrip('.')}"


def waiting_pods(rows: Sequence[PodRow], messages: Mapping[str, str]) -> list[Waiting]:
    """Waiting pods by cluster and archetype, most pods first."""
    parts: defaultdict[tuple[str, str], list[PodRow]] = defaultdict(list)
    for row in rows:
        parts[row.cluster, row.archetype].append(row)
    found = [
        Waiting(cluster, archetype, waits, of, messages)
        for (cluster, archetype), of in sorted(parts.items())
        if (waits := [r for r in of if r.bound_micros is None and r.deleted_micros is None])
    ]
    return sorted(found, key=lambda each: -len(each.pods))


def sentence(waiting: Waiting, facts: RunFacts, free_capacity: FreeCapacity) -> str:
    """The waiting pods, the cause, and the scheduler's message."""
    parts = [waiting.subject, _cause(waiting, facts, free_capacity), waiting.scheduler]
    return f"{'; '.join(part for part in parts if part)}."


def _cause(waiting: Waiting, facts: RunFacts, free_capacity: FreeCapacity) -> str:
    archetype_facts = facts.archetypes.get(waiting.archetype)
    free = free_capacity.free[waiting.cluster, waiting.archetype]
    if archetype_facts is not None and archetype_facts.topology == "sameRack":
        racks = _rack_cause(waiting, free)
        if racks:
            return racks
    if facts.fleet is not None and facts.fleet.shares_machines:
        return _request_cause(waiting) or _shared_cause(waiting, facts, free_capacity)
    if free.total() >= len(waiting.pods):
        places = _counted(free.total(), "free place")
        return f"ready nodes have {places} for them, so they wait for kube-scheduler"
    return (
        _request_cause(waiting)
        or _shortfall_cause(waiting, facts, archetype_facts)
        or _machine_cause(waiting, facts, archetype_facts, free_capacity)
    )


def _rack_cause(waiting: Waiting, free: Counter[str]) -> str:
    """Gangs that cannot complete in their rack, or that fit in no rack."""
    wanted = Counter(pod.group for pod in waiting.pods)
    racks_by_gang = {
        r.group: r.rack for r in waiting.rows if r.group in wanted and _is_running(r) and r.rack
    }
    left, missing_by_rack = Counter(free), Counter[str]()
    for group, rack in racks_by_gang.items():
        missing_by_rack[rack] += max(0, wanted[group] - left[rack])
        left[rack] = max(0, left[rack] - wanted[group])
    full = sorted(rack for rack, pods in missing_by_rack.items() if pods)
    free_in_full_racks = sum(free[rack] for rack in full)
    elsewhere = free.total() - free_in_full_racks
    if full and elsewhere >= missing_by_rack.total():
        named = ", ".join(full[:_NAMED_RACKS]) + (", ..." if len(full) > _NAMED_RACKS else "")
        return (
            f"{format_number(missing_by_rack.total())} must join their gangs in {named}, with "
            f"{_counted(free_in_full_racks, 'free place')}; other racks have "
            f"{format_number(elsewhere)}"
        )
    return "" if racks_by_gang else _no_rack(free, min(wanted.values()))


def _no_rack(free: Counter[str], smallest_gang: int) -> str:
    largest = max(free.values(), default=0)
    if not largest < smallest_gang <= free.total():
        return ""
    return (
        f"there are {_counted(free.total(), 'free place')}, but no rack has more than "
        f"{format_number(largest)} and a gang needs {format_number(smallest_gang)} in one"
    )


def _request_cause(waiting: Waiting) -> str:
    """Demand that never reached a shard; "" if those timestamps are not recorded."""
    pods = waiting.pods
    unseen = sum(pod.seen_micros is None for pod in pods)
    if 2 * unseen > len(pods) and any(row.seen_micros for row in waiting.rows):
        return (
            f"{format_number(unseen)} have no CapacityRequest: the pod controller is "
            "behind or its requests are rejected"
        )
    unreported = sum(pod.rolled_up_micros is None for pod in pods)
    if 2 * unreported > len(pods) and any(row.rolled_up_micros for row in waiting.rows):
        return (
            f"the requests of {format_number(unreported)} were in no roll-up that a shard "
            "accepted: their operator is behind or has no shard"
        )
    return ""


def _shared_cause(waiting: Waiting, facts: RunFacts, free_capacity: FreeCapacity) -> str:
    """The cause if archetypes share machines, so that a shortfall belongs to no single one."""
    nodes = free_capacity.ready[waiting.cluster, waiting.archetype]
    short = [each for each in facts.shortfalls or () if each.cluster == waiting.cluster]
    shard_report = (
        "no shard responded" if facts.shortfalls is None else "no shard reports a shortfall"
    )
    if short:
        verb = "is" if len(short) == 1 else "are"
        shard_report = (
            f"the shard reports that {_counted(len(short), 'need')} of the cluster {verb} short"
        )
    places = free_capacity.free[waiting.cluster, waiting.archetype].total()
    capacity_there = f"{_counted(nodes, 'ready node')} may hold them"
    return f"{capacity_there}, with {_counted(places, 'free place')}, and {shard_report}"


def _shortfall_cause(
    waiting: Waiting, facts: RunFacts, archetype_facts: ArchetypeFacts | None
) -> str:
    if archetype_facts is None:
        return ""
    ours = [
        each
        for each in facts.shortfalls or ()
        if each.cluster == waiting.cluster
        and archetype_facts.instance_types & set(each.instance_types)
    ]
    if not ours:
        return ""
    return f"capacity is missing: {_missing(ours)}{_fleet(archetype_facts)}"


def _missing(shortfalls: Sequence[Shortfall]) -> str:
    first = shortfalls[0]
    amounts = " and ".join(f"{amount} {name}" for name, amount in sorted(first.missing.items()))
    why = f" ({first.reason})" if first.reason else ""
    text = f"the shard lacks {amounts or 'machines'} for it{why}"
    others = len(shortfalls) - 1
    if not others:
        return text
    return f"{text}, and {_counted(others, 'more need')} {'is' if others == 1 else 'are'} short"


def _fleet(archetype_facts: ArchetypeFacts) -> str:
    if archetype_facts.fleet_machines is None:
        return ""
    return f"; the fleet has {_counted(archetype_facts.fleet_machines, 'machine')} for it"


def _machine_cause(
    waiting: Waiting,
    facts: RunFacts,
    archetype_facts: ArchetypeFacts | None,
    free_capacity: FreeCapacity,
) -> str:
    place = (waiting.cluster, waiting.archetype)
    if archetype_facts is None:
        return ""
    if free_capacity.not_ready[place]:
        return (
            f"{_counted(free_capacity.not_ready[place], 'node')} for it joined and "
            "did not become ready"
        )
    if (
        archetype_facts.fleet_machines is not None
        and free_capacity.node_count(waiting.archetype) >= archetype_facts.fleet_machines
    ):
        return (
            f"all {format_number(archetype_facts.fleet_machines)} machines that the "
            "fleet has for it are in use"
        )
    shard_report = (
        "no shard responded" if facts.shortfalls is None else "no shard reports a shortfall"
    )
    if not free_capacity.ready[place]:
        return f"there is no node for it and {shard_report}"
    full = "is full" if free_capacity.ready[place] == 1 else "are full"
    return (
        f"its {_counted(free_capacity.ready[place], 'ready node')} there {full} and {shard_report}"
    )


def _is_running(row: PodRow) -> bool:
    return row.bound_micros is not None and row.deleted_micros is None


def _counted(number: int, what: str) -> str:
    return f"{format_number(number)} {what}{'' if number == 1 else 's'}"
