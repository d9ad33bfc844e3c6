"""The diagnosis: sentences on what pods waited for, by archetype and hop. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from loaddriver.judge.facts import RunFacts
from loaddriver.judge.free_capacity import free_capacity_at_end
from loaddriver.judge.gates import format_number
from loaddriver.judge.waiting import sentence, waiting_pods
from loaddriver.record.journal import Journal
from loaddriver.record.recorder import Observations
from loaddriver.record.rows import PodRow

HOP_ENDS: Mapping[str, str] = {
    "arrived": "from its due time until it existed (load driver, API server, its controller)",
    "seen": "until its CapacityRequest existed (pod controller, API server)",
    "rolledUp": "until its need had reached a shard (operator)",
    "decided": "until a machine was chosen (shard)",
    "provisioned": "until the machine began to boot (provider)",
    "nodeReady": "until the machine was a ready node (provider, kubelet)",
    "scheduled": "until it was bound (kube-scheduler)",
}
_UNDER_WAY = ("CREATING", "CONFIGURING")
_SENTENCES = 6
_WAITING_SENTENCES = 3
_REFUSED_SENTENCES = 2
_WRITES = ("create", "update", "patch", "delete")
_SLOW_SHARE = 0.01
_FEWEST_FOR_TAIL = 100
_REFUSALS: Mapping[str, str] = {
    "401": "the credential is invalid or expired",
    "403": "RBAC or a quota denies it; the response states which",
    "413": "the request is too large",
    "422": "the object is invalid, or admission denied it",
    "429": "the API server throttles its clients",
    "500": "the API server or its etcd failed",
    "503": "the API server or its etcd was unavailable",
    "504": "the API server or its etcd timed out",
}

# The response for a disruption budget, which clients retry.
_REFUSED_BY_BUDGET = "create pods/eviction 429"


def diagnose(
    facts: RunFacts,
    observed: Sequence[Observations],
    rows: Sequence[PodRow],
    refused: Mapping[str, int],
    journal: Journal | None = None,
) -> list[str]:
    """A few sentences, most important first; none for a run without pods.

    `refused` counts rejected requests by verb, resource and status, such as `create pods 403`.
    """
    soak = facts.soak_started_micros
    soaked = [row for row in rows if soak is not None and row.wait_began_micros >= soak]
    waiting = list(_waiting(facts, observed, rows))
    found = [
        *list(_refused(refused))[:_REFUSED_SENTENCES],
        *waiting,
        *(_machines(journal, facts.ended_micros) if waiting and journal else ()),
        *_tail("all pods", rows),
        *_tail("the soak's pods", soaked),
    ]
    return found[:_SENTENCES]


def _refused(refused: Mapping[str, int]) -> Iterator[str]:
    """Rejections that a retry does not resolve, unlike conflicts."""
    for request, count in sorted(refused.items(), key=lambda each: (-each[1], each[0])):
        what, _, status = request.rpartition(" ")
        if status in _REFUSALS and what.startswith(_WRITES) and request != _REFUSED_BY_BUDGET:
            yield (
                f"API servers rejected {format_number(count)} x {what} ({status}): "
                f"{_REFUSALS[status]}."
            )


def _waiting(
    facts: RunFacts, observed: Sequence[Observations], rows: Sequence[PodRow]
) -> Iterator[str]:
    messages = {uid: message for each in observed for uid, message in each.pending.items()}
    found = waiting_pods(rows, messages)
    free_capacity = free_capacity_at_end(observed, rows, facts.archetypes, facts.fleet)
    yield from (sentence(each, facts, free_capacity) for each in found[:_WAITING_SENTENCES])
    rest = found[_WAITING_SENTENCES:]
    if rest:
        pods = sum(len(each.pods) for each in rest)
        names = ", ".join(sorted({each.archetype for each in rest}))
        yield f"{format_number(pods)} more pods wait: {names}."


def _machines(journal: Journal, now_micros: int) -> Iterator[str]:
    """Machines that failed, and those in transition."""
    last = [
        events[-1]
        for story in journal.stories.values()
        if (events := [event for event in story if event.reached])
    ]
    failed = sum(event.state == "FAILED" for event in last)
    under_way = [event.at_micros for event in last if event.state in _UNDER_WAY]
    if failed or under_way:
        longest = (now_micros - min(under_way, default=now_micros)) / 1e6
        since = f", the longest for {format_number(round(longest, 1))} s" if under_way else ""
        yield f"Of the machines, {failed} failed and {len(under_way)} are in transition{since}."


def _tail(whose: str, rows: Sequence[PodRow]) -> Iterator[str]:
    """The main hop of the slowest 1 % of the bound pods."""
    bound = [row for row in rows if row.bound_micros is not None]
    if len(bound) < _FEWEST_FOR_TAIL:
        return
    slowest = sorted(bound, key=lambda row: -row.waited_seconds)
    slow = slowest[: math.ceil(len(bound) * _SLOW_SHARE)]
    spent: Counter[str] = Counter()
    for row in slow:
        spent.update(row.hops_micros())
    whole = spent.total()
    if not whole:
        return
    [(hop, most)] = spent.most_common(1)
    mean = format_number(round(whole / len(slow) / 1e6, 2))
    yield (
        f"Of {whose} the slowest {format_number(len(slow))} of "
        f"{format_number(len(bound))} waited {mean} s on "
        f"average, {100 * most / whole:.0f} % of it {HOP_ENDS[hop]}; {_mostly(slow)}."
    )


def _mostly(slow: Sequence[PodRow]) -> str:
    [(archetype, of_it)] = Counter(row.archetype for row in slow).most_common(1)
    [(cluster, there)] = Counter(row.cluster for row in slow).most_common(1)
    return (
        f"{format_number(of_it)} of them {archetype or 'unnamed'}, "
        f"{format_number(there)} in {cluster}"
    )
