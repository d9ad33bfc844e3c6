"""Which of several autoscalers with the same target scales it. Pure.

Two HPAs with one target in a member would disable each other, so only one autoscaler has HPAs.
"""

from __future__ import annotations

from collections.abc import Iterable

from bigfleet.fedhpa.objects import Autoscaler, Workload


def conflicting_autoscaler(
    autoscaler: Autoscaler, workload: Workload | None, all_of: Iterable[Autoscaler]
) -> str:
    """The name of the autoscaler that scales the target instead; "" when this one may.

    The one that claimed the workload; before it exists, one with shares, then the oldest.
    """
    claimed_by = workload.autoscaled_by if workload else ""
    if claimed_by == autoscaler.metadata.name:
        return ""
    candidates = [each for each in all_of if each.target == autoscaler.target]
    if any(each.metadata.name == claimed_by for each in candidates):
        return claimed_by
    first = min([*candidates, autoscaler], key=_precedence).metadata.name
    return "" if first == autoscaler.metadata.name else first


def _precedence(autoscaler: Autoscaler) -> tuple[bool, str, str]:
    metadata = autoscaler.metadata
    shares = any(line.share for line in autoscaler.status.clusters)
    return not shares, metadata.creation_timestamp, metadata.name


def is_not_accepted(autoscaler: Autoscaler) -> bool:
    """Whether its condition Accepted is False, such as for another's claim."""
    conditions = autoscaler.status.conditions
    return any(each.type == "Accepted" and each.status == "False" for each in conditions)
