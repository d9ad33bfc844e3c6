"""The result of an audit as text and as JSON. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from bigfleet.audit.differences import Difference, Findings
from bigfleet.audit.observations import Observation
from bigfleet.commands.tables import count


def as_text(findings: Findings, seen: Sequence[Observation]) -> str:
    """Each kind of difference with its meaning, its objects, and what to do; then what moves."""
    seconds, times = seen[-1].at - seen[0].at, len(seen)
    looked = f"seen        {times} times in {seconds:.0f} s" if times > 1 else "seen        once"
    lines = [f"compared    {_compared(seen[-1])}", looked]
    for _, group in groupby(findings.lasting, lambda each: each.kind):
        lines += ["", *_kind_lines(list(group))]
    lines += ["", verdict(findings)]
    if findings.in_transit:
        kinds = Counter(each.kind.value for each in findings.in_transit)
        named = ", ".join(f"{number:,} {kind}" for kind, number in sorted(kinds.items()))
        lines.append(f"on their way, and no difference: {named}")
    return "\n".join(lines)


def verdict(findings: Findings) -> str:
    """How much differs, in one sentence."""
    if not findings.lasting:
        return "nothing differs"
    objects = len({each.object for each in findings.lasting})
    differences = count(len(findings.lasting), "difference")
    return f"{differences} about {count(objects, 'object')}"


def as_json(findings: Findings, seen: Sequence[Observation]) -> str:
    """Everything, for programs."""
    data = {
        "differences": [_as_dict(each) for each in findings.lasting],
        "in_transit": [_as_dict(each) for each in findings.in_transit],
        "observed_at": [_moment(each.at) for each in seen],
        "compared": _numbers(seen[-1]),
    }
    return json.dumps(data, indent=2)


def _kind_lines(group: Sequence[Difference]) -> Iterator[str]:
    kind, explanation = group[0].kind.value, group[0].explanation
    yield f"{kind}: {explanation.meaning}"
    for each in group:
        since = f", since {_moment(each.since)}" if each.since else ""
        yield f"  {each.object}{since}"
        for source, statement in each.says:
            yield f"    {source}: {statement}"
    yield f"  To do: {explanation.remedy}."


def _compared(seen: Observation) -> str:
    return ", ".join(
        count(number, one.removesuffix("s")) for one, number in _numbers(seen).items() if number
    )


def _numbers(seen: Observation) -> Mapping[str, int]:
    return {
        "machines": sum(len(provider.machines) for provider in seen.providers),
        "providers": len(seen.providers),
        "shards": len(seen.shards),
        "coordinators": int(seen.coordinator is not None),
        "clusters": len(seen.clusters),
        "nodes": sum(len(cluster.nodes) for cluster in seen.clusters.values()),
        "requests": sum(len(cluster.requests) for cluster in seen.clusters.values()),
    }


def _as_dict(each: Difference) -> dict[str, Any]:
    return {
        "kind": each.kind.value,
        "object": each.object,
        "says": dict(each.says),
        "since": _moment(each.since) if each.since else "",
        "meaning": each.explanation.meaning,
        "remedy": each.explanation.remedy,
    }


def _moment(unix_seconds: float) -> str:
    return datetime.fromtimestamp(unix_seconds, UTC).isoformat(timespec="seconds")
