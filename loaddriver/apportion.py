"""Splits whole numbers exactly: pods by share, and pods into gangs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import TypeVar

Key = TypeVar("Key")


def apportion(total: int, shares: Mapping[Key, float]) -> dict[Key, int]:
    """Split `total` by `shares` into whole numbers that add up to it.

    Largest-remainder method; ties go to the earlier key, so that the result is deterministic.
    """
    whole = sum(shares.values())
    exact = {key: total * share / whole for key, share in shares.items()}
    parts = {key: int(value) for key, value in exact.items()}
    by_remainder = sorted(shares, key=lambda key: parts[key] - exact[key])
    for key in by_remainder[: total - sum(parts.values())]:
        parts[key] += 1
    return parts


def divisible(total: int, least: int, most: int) -> bool:
    """Whether `total` is a sum of whole numbers from `least` to `most`."""
    return -(-total // most) <= total // least


def largest_divisible(total: int, least: int, most: int) -> int:
    """The largest number up to `total` that is a sum of numbers from `least` to `most`."""
    return next(number for number in range(total, -1, -1) if divisible(number, least, most))


def divide(total: int, least: int, most: int, random: Random) -> list[int]:
    """Split `total` into random parts from `least` to `most`.

    `total` must be `divisible`.
    """
    parts: list[int] = []
    while total:
        fitting = [
            part
            for part in range(least, min(most, total) + 1)
            if divisible(total - part, least, most)
        ]
        parts.append(random.choice(fitting))
        total -= parts[-1]
    return parts


def prefix_sums(values: Sequence[int]) -> list[int]:
    """The sum of the values before each one: [3, 4, 5] -> [0, 3, 7]."""
    before, starts = 0, []
    for value in values:
        starts.append(before)
        before += value
    return starts
