"""The invariants that hold after every single write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bigfleet.fedhpa.shares.records import ClusterBounds, ReplicaBounds, Share


def violations(
    total: ReplicaBounds,
    bounds: Mapping[str, ClusterBounds],
    before: Mapping[str, Share],
    after: Mapping[str, Share],
) -> list[str]:
    """What the step from `before` to `after` violates.

    The sum of max never exceeds the user's max, the sum of min never falls below the user's min;
    where the user's change or a loss already violated that, no write makes it worse. A new cluster
    may grow up to its preferred min; no write lowers one below.
    """
    return [*_sums(total, before, after), *_each(bounds, before, after)]


def _sums(
    total: ReplicaBounds, before: Mapping[str, Share], after: Mapping[str, Share]
) -> Iterator[str]:
    most_before, max_replicas = (sum(s.max for s in each.values()) for each in (before, after))
    least_before, min_replicas = (sum(s.min for s in each.values()) for each in (before, after))
    if max_replicas > max(total.max, most_before):
        yield f"sum of max {most_before} -> {max_replicas}, the user's max is {total.max}"
    if min_replicas < min(total.min, least_before):
        yield f"sum of min {least_before} -> {min_replicas}, the user's min is {total.min}"


def _each(
    bounds: Mapping[str, ClusterBounds], before: Mapping[str, Share], after: Mapping[str, Share]
) -> Iterator[str]:
    for name, share in after.items():
        had, bound = before.get(name), bounds.get(name, ClusterBounds())
        if share == had:
            continue
        if not 1 <= share.min <= share.max:
            yield f"{name}: min {share.min}, max {share.max}"
        if share.max > max(bound.max_replicas, had.max if had else 0):
            yield f"{name}: max {share.max} is above its {bound.max_replicas}"
        if had and share.min < min(bound.min_replicas, had.min):
            yield f"{name}: min {share.min} is below its {bound.min_replicas}"
