"""Divides whole replicas evenly or in proportion, exactly and deterministically.

The order of a mapping is the clusters' rank, which decides where odd replicas go.
"""

from __future__ import annotations

from collections.abc import Mapping


def raise_evenly(levels: Mapping[str, int], caps: Mapping[str, int], amount: int) -> dict[str, int]:
    """Add up to `amount` in all, always to the lowest levels, none beyond its cap."""
    result = dict(levels)
    while amount > 0:
        below = [name for name in result if result[name] < caps[name]]
        if not below:
            break
        lowest = min(result[name] for name in below)
        group = [name for name in below if result[name] == lowest]
        steps = [caps[name] - lowest for name in group]
        steps += [result[name] - lowest for name in below if result[name] > lowest]
        step = min(*steps, amount // len(group))
        if not step:
            group, step = group[:amount], 1
        for name in group:
            result[name] += step
        amount -= step * len(group)
    return result


def lower_evenly(
    levels: Mapping[str, int], floors: Mapping[str, int], amount: int
) -> dict[str, int]:
    """Take up to `amount` in all, always from the highest levels, none below its floor."""
    mirrored = raise_evenly(
        {name: -level for name, level in levels.items()},
        {name: -floors[name] for name in levels},
        amount,
    )
    return {name: -level for name, level in mirrored.items()}


def in_proportion(amount: int, wants: Mapping[str, int]) -> dict[str, int]:
    """`amount` divided in proportion to `wants` (>= 0), none getting more than it wants."""
    total = sum(wants.values())
    if amount >= total:
        return dict(wants)
    if amount <= 0:
        return dict.fromkeys(wants, 0)
    given = {name: amount * want // total for name, want in wants.items()}
    by_remainder = sorted(wants, key=lambda name: -(amount * wants[name] % total))
    for name in by_remainder[: amount - sum(given.values())]:
        given[name] += 1
    return given
