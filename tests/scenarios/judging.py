"""Whether what is expected holds of a history. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from tests.scenarios import domains
from tests.scenarios.history import History, Object, ObservedNode, named
from tests.scenarios.records import Expect, Machines, Reports
from tests.scenarios.timing import DEFAULT_TIMEOUT_SECONDS


@dataclass(frozen=True)
class Message:
    """Something that the autoscaler says of a pod, in an Event or in a condition."""

    by: str
    reason: str
    message: str


@dataclass(frozen=True)
class MessagePattern:
    """How one autoscaler words a remark: the reason of its Event, with a text that tells it from
    others of that reason; and the reason of its condition, if it has one.
    """

    event: str
    event_text: str = ""
    condition: str = ""


MessagePatterns = Mapping[str, MessagePattern]


@dataclass(frozen=True)
class Facts:
    """What is known beside the history: what the autoscaler says of pods, by UID, and in which
    words; and workloads by reference, looked up where they are asked for.
    """

    messages: Mapping[str, Sequence[Message]] = field(default_factory=dict)
    message_patterns: MessagePatterns = field(default_factory=dict)
    workloads: Mapping[str, Object] = field(default_factory=dict)


@dataclass(frozen=True)
class Unmet:
    """One thing that does not hold, and how long it may take to come to hold."""

    text: str
    within: float


def eventual_problems(expect: Expect, seen: History, facts: Facts) -> Iterator[Unmet]:
    """What does not hold yet of what may take its time."""
    return chain.from_iterable(check(expect, seen, facts) for check in _EVENTUAL_CHECKS)


def final_problems(expect: Expect, seen: History) -> Iterator[str]:
    """What does not hold of what must hold once all else does."""
    yield from domains.problems(expect, seen)
    for evicted in expect.evicted:
        since = seen.stepped_at if evicted.since_step else 0.0
        pods = seen.evicted(since, evicted.pods)
        if len(pods) > evicted.at_most:
            why = ", ".join(sorted({pod.disrupted for pod in pods}))
            yield f"{len(pods)} pods were evicted, not {evicted.at_most}: {named(pods)} ({why})"
    for name in expect.nodes.there if expect.nodes else ():
        if seen.named[name].gone_at is not None:
            yield f"Node {seen.named[name].name} ({name}) is gone"


def disturbances(seen: History, since: float) -> Iterator[str]:
    """What has happened to Nodes and pods since then, where nothing should have."""
    for node in seen.nodes.values():
        if node.joined_at > since:
            yield f"Node {node.name} came at {node.joined_at:.1f} s, though nothing was lacking"
        elif node.gone_at is not None and node.gone_at > since:
            yield f"Node {node.name} went at {node.gone_at:.1f} s"
        for moment in node.cordons:
            if moment > since:
                yield f"Node {node.name} was cordoned at {moment:.1f} s"
    for pod in seen.evicted(since):
        yield f"pod {pod.name} was evicted at {pod.disrupted_at:.1f} s ({pod.disrupted})"


def _bound(expect: Expect, seen: History, _: Facts) -> Iterator[Unmet]:
    for each in expect.bound:
        live, bound = seen.live(each.pods), seen.bound(each.pods)
        if len(live) != each.count:
            yield Unmet(f"there are {len(live)} pods {each.pods}, not {each.count}", each.within)
        if waiting := [pod for pod in live if pod not in bound]:
            first = f"{named(waiting)}; the first: {waiting[0].waits_for}"
            text = f"{len(waiting)} of {len(live)} pods {each.pods} wait: {first}"
            yield Unmet(text, each.within)


def _pending(expect: Expect, seen: History, _: Facts) -> Iterator[Unmet]:
    for each in expect.pending:
        waiting = [pod for pod in seen.live(each.pods) if not pod.node]
        if len(waiting) != each.count:
            text = f"{len(waiting)} pods {each.pods} are pending, not {each.count}"
            yield Unmet(text, each.within)


def _ended(expect: Expect, seen: History, _: Facts) -> Iterator[Unmet]:
    for each in expect.finished:
        ended = [pod for pod in seen.matching(each.pods) if pod.phase == "Succeeded"]
        if len(ended) != each.count:
            text = f"{len(ended)} pods {each.pods} have ended well, not {each.count}"
            yield Unmet(text, each.within)
    for none in expect.no_pods:
        if left := [pod for pod in seen.matching(none.pods) if pod.gone_at is None]:
            yield Unmet(f"{len(left)} pods {none.pods} are left: {named(left)}", none.within)


def _machines(expect: Expect, seen: History, _: Facts) -> Iterator[Unmet]:
    for each in expect.machines:
        for text in chain(_number(each, seen), _peak(each, seen)):
            yield Unmet(text, each.within)


def _number(expected: Machines, seen: History) -> Iterator[str]:
    present = seen.present(expected.where)
    count = len(present)
    observed = f"there are {count} Nodes{_of(expected)} ({_types(present)})"
    if expected.exactly is not None and count != expected.exactly:
        yield f"{observed}, not {expected.exactly}"
    if expected.at_most is not None and count > expected.at_most:
        yield f"{observed}, more than {expected.at_most}"
    if expected.at_least is not None and count < expected.at_least:
        yield f"{observed}, fewer than {expected.at_least}"
    if expected.more is not None and count - seen.counted != expected.more:
        yield f"{observed}, {count - seen.counted:+d} since before, not {expected.more:+d}"


def _peak(expected: Machines, seen: History) -> Iterator[str]:
    most = seen.most_nodes(seen.stepped_at, expected.where)
    observed = f"there were {most} Nodes{_of(expected)} at a time"
    if expected.peak is not None and most > expected.peak:
        yield f"{observed}, more than {expected.peak}"
    if expected.peak_more is not None and most - seen.counted > expected.peak_more:
        yield f"{observed}, {most - seen.counted:+d} since before, not {expected.peak_more:+d}"


def _reports(expect: Expect, seen: History, facts: Facts) -> Iterator[Unmet]:
    for reports in expect.reports:
        pods = [pod for pod in seen.live(reports.pods) if not pod.node]
        if not pods:
            yield Unmet(f"no pod {reports.pods} waits, so there is no explanation", reports.within)
        for pod in pods:
            for text in _unreported(
                reports,
                facts.messages.get(pod.uid, ()),
                facts.message_patterns[reports.reason_name],
            ):
                yield Unmet(f"{pod.name}: {text}", reports.within)


def _unreported(
    reports: Reports, messages: Sequence[Message], wording: MessagePattern
) -> Iterator[str]:
    events, conditions = ([r for r in messages if r.by == by] for by in ("event", "condition"))
    fit = [r for r in events if r.reason == wording.event and wording.event_text in r.message]
    yield from _missing(f"Event {wording.event} ({wording.event_text})", reports, fit, events)
    if wording.condition:
        fit = [r for r in conditions if r.reason == wording.condition]
        yield from _missing(f"condition {wording.condition}", reports, fit, conditions)


def _missing(
    what: str, reports: Reports, fit: Sequence[Message], there: Sequence[Message]
) -> Iterator[str]:
    found = (
        "; ".join(f"{reason_name.reason}: {reason_name.message}" for reason_name in there) or "none"
    )
    if not fit:
        yield f"no {what}; there is {found}"
    for part in reports.mentions:
        if fit and not any(part in reason_name.message for reason_name in fit):
            yield f"no {what} mentions {part!r}; there is {found}"


def _daemons(expect: Expect, seen: History, _: Facts) -> Iterator[Unmet]:
    for selector in expect.one_per_node:
        for text in _one_per_node(selector, seen):
            yield Unmet(text, DEFAULT_TIMEOUT_SECONDS)


def _one_per_node(selector: str, seen: History) -> Iterator[str]:
    bound = seen.bound(selector)
    counts = Counter(pod.node for pod in bound)
    if not seen.present():
        yield f"there is no Node on which a pod {selector} could run"
    for node in seen.present():
        # On a Node that keeps pods away there may be none.
        if counts[node.name] > 1 or (not counts[node.name] and not node.has_repelling_taint):
            yield f"Node {node.name} runs {counts[node.name]} pods {selector}, not one"
    # Kubernetes leaves a pod of a Node that is gone for a minute, and makes no other in its place.
    if waiting := [pod for pod in seen.live(selector) if not pod.node]:
        yield f"pods {selector} wait: {named(waiting)}; the first: {waiting[0].waits_for}"


def _roll_outs(expect: Expect, _: History, facts: Facts) -> Iterator[Unmet]:
    for name in expect.rolled_out:
        for text in _not_rolled_out(name, facts.workloads[name]):
            yield Unmet(text, DEFAULT_TIMEOUT_SECONDS)


def _not_rolled_out(name: str, workload: Object) -> Iterator[str]:
    """As kubectl rollout status has it."""
    status, wanted = workload.get("status", {}), workload["spec"].get("replicas", 1)
    if status.get("observedGeneration", 0) < workload["metadata"]["generation"]:
        yield f"{name}: its controller has not seen the newest revision"
    new, everyone = status.get("updatedReplicas", 0), status.get("replicas", 0)
    if new != wanted or everyone != wanted or status.get("readyReplicas", 0) != wanted:
        yield f"{name}: {new} of {wanted} pods are of the newest revision, {everyone - new} older"


def _nodes(expect: Expect, seen: History, _: Facts) -> Iterator[Unmet]:
    if expect.nodes is None:
        return
    for name in expect.nodes.gone:
        if seen.named[name].gone_at is None:
            text = f"Node {seen.named[name].name} ({name}) is still there"
            yield Unmet(text, expect.nodes.within)


def _of(machines: Machines) -> str:
    return f" with {machines.where}" if machines.where else ""


def _types(nodes: Sequence[ObservedNode]) -> str:
    types = Counter(node.labels.get("node.kubernetes.io/instance-type", "?") for node in nodes)
    return ", ".join(f"{count} {name}" for name, count in sorted(types.items())) or "none"


_Check = Callable[[Expect, History, Facts], Iterator[Unmet]]
_EVENTUAL_CHECKS: tuple[_Check, ...] = (
    *(_bound, _pending, _ended, _machines),
    *(_reports, _daemons, _roll_outs, _nodes),
)
