"""Two summaries of one plan, leaf by leaf: what differs, and why that is to be expected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# A path, or the beginning of one, and why two runs of one plan differ there.
IDENTITY, PLACE, TIME = "which run it is", "where it ran", "how long things took"
EXPECTED: Mapping[str, str] = {
    "run.id": IDENTITY,
    "run.startedUnixSeconds": IDENTITY,
    "run.soakStartedUnixSeconds": IDENTITY,
    "run.substrate": PLACE,
    "run.versions": PLACE,
    "run.environment": PLACE,
    "run.durationSeconds": TIME,
    "provenance": PLACE,
    "resources": PLACE,
    "why": TIME,
    "diagnosis": TIME,
    "dueToBindSeconds": TIME,
    "bindLatencySeconds": TIME,
    "hopsSeconds": TIME,
    "placement": TIME,
    "archetypes": TIME,
    "clusters": TIME,
    "ramp": TIME,
    "soak": TIME,
    "backlog.max": TIME,
    "machines": TIME,
    "nodes": TIME,
    "gangs": TIME,
    "gates": TIME,
    "requests": TIME,
    "curves": TIME,
    "timeline": TIME,
    "waitBands": TIME,
    "milestones": TIME,
    "load": TIME,
    "components": TIME,
    "selfChecks": TIME,
    "audit.lines": TIME,
    "audit.requests": TIME,
    "audit.boundBy": TIME,
    "audit.failedRequests": TIME,
    "audit.watch": TIME,
    "audit.clock": TIME,
    # A pod that is churned is made anew; how many are depends on when the soak began.
    "pods.created": TIME,
    "pods.bound": TIME,
    "pods.withdrawn": TIME,
    "pods.withoutDueTime": TIME,
}


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Every leaf that differs, by its path; None where a summary has no such leaf."""
    left, right = dict(_leaves("", one)), dict(_leaves("", other))
    return {
        path: (left.get(path), right.get(path))
        for path in sorted({*left, *right})
        if left.get(path) != right.get(path)
    }


def reason(path: str) -> str | None:
    """Why two runs of one plan may differ there; None where they may not."""
    return next((why for known, why in EXPECTED.items() if _within(path, known)), None)


def _within(path: str, known: str) -> bool:
    return path == known or path.startswith((f"{known}.", f"{known}["))


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _leaves(f"{path}.{key}" if path else key, each)
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _leaves(f"{path}[{number}]", each)
    else:
        yield path, value
