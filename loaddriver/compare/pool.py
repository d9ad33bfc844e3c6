"""Recorded pairs, and how often sessions made of them would err. Pure but for reading files.

A session is drawn from a pool without replacement. Of equal systems (A/A), which run of a pair was
HEAD is a label that could as well be the other: each is flipped by a coin. What the pool itself
does not know is covered by an interval: the same with pools drawn from it with replacement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from bigfleet.model.errors import UNDECODABLE
from loaddriver.compare.comparison import Pairing, Record
from loaddriver.compare.measures import ENDPOINTS, EVENTS, PairMeasures
from loaddriver.compare.sequential import (
    FAMILY_ERROR,
    Code,
    Codes,
    Floats,
    Spending,
    percent_of,
    sessions,
    two_sided_tail,
)
from loaddriver.errors import ProfileError

SCHEMA = "bigfleet.compare-pool/v2"
LEAST_POWER = 0.95
LEAST_PAIRS = {"": 24, "injected": 12}
_REPLICAS = 200
_REPLICA_SESSIONS = 100
_DIGITS = 5
_KEYS = tuple(endpoint.key for endpoint in ENDPOINTS)

Order: TypeAlias = NDArray[np.intp]
"""The pairs of each session, in the order that it sees them."""

Judge: TypeAlias = Callable[[Floats, Floats, Floats, Spending], Codes]
"""Codes by session of all endpoints and events, given log ratios and events by session and pair."""


class PoolPair(Record, frozen=True, kw_only=True):
    """One recorded pair: log ratios by endpoint, and the counts of each side's events."""

    ratios: dict[str, float]
    base_events: dict[str, int]
    head_events: dict[str, int]


class Pool(Record, frozen=True, kw_only=True):
    """Pairs of one machine and profile. `injected` is "" for A/A, else what was done to HEAD, as in
    `scheduled=+10%`; `endpoint` is where that must be found.
    """

    schema: str = SCHEMA
    profile: str
    machine: str
    injected: str
    endpoint: str
    pairing: Pairing = "interleaved"
    pairs: list[PoolPair]


@dataclass(frozen=True)
class Rate:
    """How often something happens, and the 95 % interval of what other pools would say."""

    pool: Pool
    rate: float
    interval: tuple[float, float]

    @property
    def passes(self) -> bool:
        """Whether A/A regress rarely enough, or an injected fault is found often enough."""
        return self.rate >= LEAST_POWER if self.pool.injected else self.rate <= FAMILY_ERROR


def standard_judge(ratios: Floats, head: Floats, base: Floats, plan: Spending) -> Codes:
    """What `loaddriver compare` would say of these sessions."""
    return sessions(ratios, head, base, plan)[0]


def rate_of(pool: Pool, draws: int, seed: int = 1, judge: Judge = standard_judge) -> Rate:
    """The share of sessions that report a regression: of any endpoint for A/A, and of the one it
    was injected into otherwise.
    """
    generator = np.random.default_rng(seed)
    ratios, head, base = _arrays(pool)
    found = _share(
        pool, _draw(generator, len(ratios), draws), (ratios, head, base), generator, judge
    )
    replicas = []
    for _ in range(_REPLICAS):
        again = generator.integers(0, len(ratios), len(ratios))
        replica = (ratios[again], head[again], base[again])
        order = _draw(generator, len(ratios), _REPLICA_SESSIONS)
        replicas.append(_share(pool, order, replica, generator, judge))
    low, high = np.quantile(replicas, (0.025, 0.975))
    return Rate(pool, found, (float(low), float(high)))


@dataclass(frozen=True)
class Shift:
    """The endpoint in which the pairs of a pool differ most surely between their sides: by a
    geometric mean of so many percent, with a two-sided tail by Student's t.
    """

    endpoint: str
    percent: float
    tail: float


def surest_shift(pool: Pool) -> Shift:
    """Of equal systems it is chance, or a bias for one side that relabelling cannot show."""
    found = (
        Shift(endpoint, percent_of(ratios.mean()), two_sided_tail(ratios))
        for endpoint, ratios in zip(_KEYS, _arrays(pool)[0].T, strict=True)
    )
    return min(found, key=lambda shift: shift.tail)


def pool_of(
    profile: str,
    machine: str,
    pairs: Sequence[PairMeasures],
    injected: str = "",
    endpoint: str = "",
    pairing: Pairing = "interleaved",
) -> Pool:
    """A pool of these pairs."""
    return Pool(
        profile=profile,
        machine=machine,
        injected=injected,
        endpoint=endpoint,
        pairing=pairing,
        pairs=[
            PoolPair(ratios=p.ratios, base_events=p.base.events, head_events=p.head.events)
            for p in pairs
        ],
    )


def together(pools: Sequence[Pool]) -> Pool:
    """One pool of the pairs of all. Raises ProfileError if they are of different things."""
    first = pools[0]
    for other in pools[1:]:
        for what in ("profile", "machine", "injected", "endpoint", "pairing"):
            one, another = getattr(first, what), getattr(other, what)
            if one != another:
                raise ProfileError(
                    [f"sessions of another {what}: {one or 'none'} and {another or 'none'}"]
                )
    return msgspec.structs.replace(first, pairs=[pair for pool in pools for pair in pool.pairs])


def write_pool(path: Path, pool: Pool) -> None:
    """Write a pool, rounded to what a comparison can tell apart."""
    pairs = [
        msgspec.structs.replace(
            pair, ratios={key: round(value, _DIGITS) for key, value in sorted(pair.ratios.items())}
        )
        for pair in pool.pairs
    ]
    rounded = msgspec.structs.replace(pool, pairs=pairs)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(rounded), indent=1) + b"\n")


def read_pool(path: Path) -> Pool:
    """Read a pool. Raises ProfileError if it is none."""
    try:
        pool = msgspec.json.decode(path.read_bytes(), type=Pool)
    except OSError as error:
        raise ProfileError([f"{path}: {error.strerror}"]) from None
    except UNDECODABLE as error:
        raise ProfileError([f"{path}: not a pool of schema {SCHEMA}: {error}"]) from None
    if pool.schema != SCHEMA:
        raise ProfileError([f"{path}: a pool of schema {pool.schema}, not {SCHEMA}"])
    return pool


def read_large_pool(path: Path) -> Pool:
    """Read a pool that `rate_of` can judge. Raises ProfileError also if it has too few pairs."""
    pool = read_pool(path)
    least = LEAST_PAIRS["injected" if pool.injected else ""]
    if len(pool.pairs) < least:
        raise ProfileError([f"{path}: {len(pool.pairs)} pairs; at least {least} are needed"])
    if pool.injected and pool.endpoint not in _KEYS:
        raise ProfileError([f"{path}: no endpoint {pool.endpoint!r}; they are {', '.join(_KEYS)}"])
    return pool


def _share(
    pool: Pool,
    order: Order,
    recorded: tuple[Floats, Floats, Floats],
    generator: np.random.Generator,
    judge: Judge,
) -> float:
    ratios, head, base = recorded[0][order], recorded[1][order], recorded[2][order]
    if not pool.injected:
        flipped = generator.random(order.shape) < 0.5
        ratios = np.where(flipped[..., None], -ratios, ratios)
        head, base = (
            np.where(flipped[..., None], base, head),
            np.where(flipped[..., None], head, base),
        )
    codes = judge(ratios, head, base, Spending())
    regressed = codes == Code.REGRESSION
    if pool.injected:
        return float(regressed[:, _KEYS.index(pool.endpoint)].mean())
    return float(regressed.any(axis=1).mean())


def _draw(generator: np.random.Generator, pairs: int, draws: int) -> Order:
    """The pairs of each session, in the order that it sees them."""
    most = min(pairs, Spending().looks[-1])
    return np.argsort(generator.random((draws, pairs)), axis=1)[:, :most]


def _arrays(pool: Pool) -> tuple[Floats, Floats, Floats]:
    ratios = np.array([[pair.ratios.get(key, np.nan) for key in _KEYS] for pair in pool.pairs])
    head, base = (
        np.array([[float(side.get(key, 0)) for key in EVENTS] for side in sides])
        for sides in (
            [pair.head_events for pair in pool.pairs],
            [pair.base_events for pair in pool.pairs],
        )
    )
    return ratios, head, base
