"""What happened in a scenario that failed, for whoever must find out why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.scenarios.files import Case
from tests.scenarios.history import History, ObservedNode, ObservedPod

_MOST_LINES, _NAMED, _MESSAGE = 40, 4, 400
# They say what is said of pods and Nodes already.
_OMITTED_REASONS = (
    "Scheduled",
    "SuccessfulCreate",
    "SuccessfulDelete",
    "ScalingReplicaSet",
    "RegisteredNode",
)


def story(case: Case, system: str, wrong: Sequence[str], seen: History, said: str) -> str:
    """All of it as text: what failed, steps, Nodes, pods, Events, and what the system says."""
    sections = [
        ("what does not hold", wrong),
        ("steps", [f"{at:6.1f} s  {text}" for at, text in seen.steps]),
        ("Nodes", map(_node, sorted(seen.nodes.values(), key=lambda node: node.joined_at))),
        ("pods", _pods(seen)),
        ("Events", _events(seen)),
        (f"what {system} says", said.splitlines()),
    ]
    lines = [f"{case.group}/{case.name}.yaml, held to by {system}: {case.scenario.rule}"]
    for title, content in sections:
        lines += ["", f"{title}:", *(f"  {line}" for line in content)]
    return "\n".join(lines)


def _node(node: ObservedNode) -> str:
    where = node.labels.get(
        "topology.bigfleet/rack", node.labels.get("topology.kubernetes.io/zone")
    )
    kind = node.labels.get("node.kubernetes.io/instance-type", "?")
    taints = [f"{t['key']}:{t['effect']}" for t in node.latest["spec"].get("taints") or ()]
    story = [f"came {node.joined_at:.1f} s", *(f"cordoned {at:.1f} s" for at in node.cordons)]
    if node.gone_at is not None:
        story.append(f"went {node.gone_at:.1f} s")
    return f"{node.name}, {kind} in {where}: {', '.join([*story, *taints])}"


def _pods(seen: History) -> Iterator[str]:
    """Pods of one object that fared alike in one line; those with a trouble first."""
    alike: dict[tuple[bool, str], list[ObservedPod]] = {}
    for pod in seen.matching(None):
        troubled = bool(pod.disrupted) or (pod.live and not pod.node)
        alike.setdefault((not troubled, _fate(pod)), []).append(pod)
    for (_, fate), pods in sorted(alike.items(), key=lambda each: each[0])[:_MOST_LINES]:
        names = ", ".join(pod.name for pod in pods[:_NAMED]) + ", ..." * (len(pods) > _NAMED)
        bound = [pod.bound_at for pod in pods if pod.bound_at is not None]
        when = f" bound at {min(bound):.1f} to {max(bound):.1f} s," if bound else ""
        yield f"{len(pods)} seen from {pods[0].seen_at:.1f} s on,{when} {fate}: {names}"


def _fate(pod: ObservedPod) -> str:
    parts = [f"in {pod.namespace}, {pod.phase}"]
    if pod.bound_at is not None:
        parts.append(f"on {pod.node}")
    if pod.disrupted:
        parts.append(f"{pod.disrupted}{' by hand' * pod.by_hand} at {pod.disrupted_at:.0f} s")
    if pod.gone_at is not None:
        parts.append(f"gone at {pod.gone_at:.0f} s")
    elif not pod.node:
        parts.append(f"waiting ({pod.waits_for})")
    return ", ".join(parts)


def _events(seen: History) -> Iterator[str]:
    """Equal ones of one kind of object in one line, the newest last."""
    alike: dict[tuple[str, str, str], list[tuple[float, str]]] = {}
    for at, event in sorted(seen.events.values(), key=lambda each: each[0]):
        about, reason = event["involvedObject"], str(event.get("reason"))
        if reason not in _OMITTED_REASONS:
            key = (str(about.get("kind")), reason, str(event.get("message"))[:_MESSAGE])
            alike.setdefault(key, []).append((at, str(about.get("name"))))
    for (kind, reason, message), those in list(alike.items())[-_MOST_LINES:]:
        count = f" ({len(those)} such)" if len(those) > 1 else ""
        at, name = those[-1]
        yield f"{at:6.1f} s  {kind}/{name}{count} {reason}: {message}"
