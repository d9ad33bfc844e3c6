"""Where bound pods are: apart, together, spread, on the Nodes that are meant. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from tests.scenarios import objects
from tests.scenarios.history import History, ObservedPod, named
from tests.scenarios.records import TOPOLOGY_KEYS, Apart, Expect, Spread, Together, Where


def problems(expect: Expect, seen: History) -> Iterator[str]:
    """What an expectation says of places and does not hold."""
    return chain(
        *(_apart(each, seen) for each in expect.apart),
        *(_together(each, seen) for each in expect.together),
        *(_spread(each, seen) for each in expect.spread),
        *(_where(each, seen) for each in expect.where),
    )


def _apart(apart: Apart, seen: History) -> Iterator[str]:
    found, wrong = _by_domain(apart.pods, apart.by, seen)
    yield from wrong
    for domain, pods in sorted(found.items()):
        if len(pods) > 1:
            yield f"{len(pods)} pods {apart.pods} share {apart.by} {domain}: {named(pods)}"


def _together(together: Together, seen: History) -> Iterator[str]:
    found, wrong = _by_domain(together.pods, together.by, seen, 1 if together.beside else 2)
    yield from wrong
    if together.beside:
        beside, wrong = _by_domain(together.beside, together.by, seen, 1)
        yield from wrong
        found = {**found, **beside}
    if len(found) > 1:
        yield f"pods {together.pods} are in {len(found)} of {together.by}: {_counts(found)}"


def _spread(spread: Spread, seen: History) -> Iterator[str]:
    found, wrong = _by_domain(spread.pods, spread.by, seen)
    yield from wrong
    sizes = [len(pods) for pods in found.values()] or [0]
    if len(found) < spread.domains:
        yield f"pods {spread.pods} are in {_counts(found)}, not in {spread.domains} of {spread.by}"
    elif max(sizes) - min(sizes) > spread.max_skew:
        yield f"pods {spread.pods} are skewed by more than {spread.max_skew}: {_counts(found)}"


def _where(where: Where, seen: History) -> Iterator[str]:
    pods = seen.bound(where.pods)
    if not pods:
        yield f"no pod {where.pods} is bound, so its place is unknown"
    for pod in pods:
        node = seen.node_of(pod)
        if node and objects.matches(where.labels, node.labels) == where.never:
            has = "with" if where.never else "without"
            yield f"pod {pod.name} is on {node.name}, a Node {has} {where.labels}"


def _by_domain(
    selector: str, by: str, seen: History, at_least: int = 2
) -> tuple[dict[str, list[ObservedPod]], list[str]]:
    """Bound pods by domain, and what is wrong before anything is compared."""
    key, wrong = TOPOLOGY_KEYS[by], []
    found: defaultdict[str, list[ObservedPod]] = defaultdict(list)
    for pod in seen.bound(selector):
        node = seen.node_of(pod)
        domain = node.labels.get(key, "") if node else ""
        if domain:
            found[domain].append(pod)
        else:
            wrong.append(f"the Node {pod.node} of pod {pod.name} has no label {key}")
    if sum(map(len, found.values())) < at_least and not wrong:
        wrong.append(f"too few pods {selector} are bound: there is nothing to compare")
    return found, wrong


def _counts(found: Mapping[str, Sequence[ObservedPod]]) -> str:
    texts = [f"{domain} {len(pods)}" for domain, pods in sorted(found.items())]
    return ", ".join(texts) or "no domain"
