"""What must be true after every single write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bigfleet.federation.shares.records import Bounds, Share, Wish


def violations(
    wish: Wish,
    bounds: Mapping[str, Bounds],
    before: Mapping[str, Share],
    after: Mapping[str, Share],
) -> list[str]:
    """What the step from `before` to `after` breaks.

    The sum of max never passes the user's max, the sum of min never falls below the user's min;
    where the user's own change or a loss already broke that, no write makes it worse. A cluster
    that is new may grow up to its preferred min; no write takes one below.
    """
    return [*_sums(wish, before, after), *_each(bounds, before, after)]


def _sums(wish: Wish, before: Mapping[str, Share], after: Mapping[str, Share]) -> Iterator[str]:
    most_before, most = (sum(s.max for s in each.values()) for each in (before, after))
    least_before, least = (sum(s.min for s in each.values()) for each in (before, after))
    if most > max(wish.max, most_before):
        yield f"sum of max {most_before} -> {most}, the user's max is {wish.max}"
    if least < min(wish.min, least_before):
        yield f"sum of min {least_before} -> {least}, the user's min is {wish.min}"


def _each(
    bounds: Mapping[str, Bounds], before: Mapping[str, Share], after: Mapping[str, Share]
) -> Iterator[str]:
    for name, share in after.items():
        had, bound = before.get(name), bounds.get(name, Bounds())
        if share == had:
            continue
        if not 1 <= share.min <= share.max:
            yield f"{name}: min {share.min}, max {share.max}"
        if share.max > max(bound.most, had.max if had else 0):
            yield f"{name}: max {share.max} is above its {bound.most}"
        if had and share.min < min(bound.least, had.min):
            yield f"{name}: min {share.min} is below its {bound.least}"
