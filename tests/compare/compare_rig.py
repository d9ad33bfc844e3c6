"""Made-up runs and pairs, as small as comparisons need them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from loaddriver.compare.comparison import Comparison, Side
from loaddriver.compare.evaluate import About, compare
from loaddriver.compare.exact import Void
from loaddriver.compare.measures import (
    DUE_TO_BIND,
    SCHEDULED,
    PairMeasures,
    RunMeasures,
    pair_measures,
)
from loaddriver.compare.sequential import Spending
from loaddriver.record.hops import HOPS

T = TypeVar("T")
PLAN = Spending()
PARTS = {
    "arrived": 0.1,
    "seen": 0.05,
    "rolledUp": 0.5,
    "decided": 0.3,
    "provisioned": 3.0,
    "nodeReady": 1.0,
    "scheduled": 0.2,
    "shard.cpu": 3.0,
    "operator.cpu": 2.0,
    "pod-controller.cpu": 4.0,
    "provider.cpu": 1.0,
    "kube-apiserver.cpu": 35.0,
    "etcd.cpu": 9.0,
}
"""Seconds and milliseconds per pod of a run as it is without noise."""
CYCLE_MILLISECONDS = 15.0
OBJECTS = 40


def run(factors: Mapping[str, float] | None = None, **events: int) -> RunMeasures:
    """A run whose parts are multiplied by these factors, 1 if not given."""
    given = factors or {}
    parts = {name: value * given.get(name, 1.0) for name, value in PARTS.items()}
    wait = sum(value for name, value in parts.items() if not name.endswith(".cpu"))
    bigfleet = ("shard.cpu", "operator.cpu", "pod-controller.cpu", "provider.cpu")
    return RunMeasures(
        values={
            DUE_TO_BIND: wait,
            "machines": parts["provisioned"] + parts["nodeReady"],
            "scheduled": parts["scheduled"],
            "bigfleetCpu": sum(parts[name] for name in bigfleet),
            "shardCpu": CYCLE_MILLISECONDS * given.get("shard.cpu", 1.0),
            "apiCpu": parts["kube-apiserver.cpu"] + parts["etcd.cpu"],
        },
        parts=parts,
        events={"neverBound": 0, "withdrawn": 0, "gangsNotWhole": 0, **events},
        described={"due to bind, p50 (s)": wait},
        waits={
            DUE_TO_BIND: _of_all(math.log(wait)),
            SCHEDULED: _of_all(math.log(parts[SCHEDULED])),
        },
        hops=_of_all({hop: parts[hop] for hop in HOPS}),
    )


def _of_all(value: T) -> dict[str, T]:
    return {f"c1/web-{number}": value for number in range(OBJECTS)}


def noisy(random: np.random.Generator, deviation: float, **factors: float) -> RunMeasures:
    """A run with noise of that deviation in every part."""
    found = {name: math.exp(random.normal(0, deviation)) for name in PARTS}
    return run({name: value * factors.get(name, 1.0) for name, value in found.items()})


def pairs_of(
    count: int, deviation: float = 0.02, seed: int = 1, head: Mapping[str, float] | None = None
) -> list[PairMeasures]:
    """Pairs whose HEAD has these factors."""
    random = np.random.default_rng(seed)
    return [
        pair_measures(noisy(random, deviation), noisy(random, deviation, **(head or {})))
        for _ in range(count)
    ]


def side(label: str, revision: str = "") -> Side:
    """A side that differs in nothing but its revision."""
    return Side(label=label, revision=revision, dirty=False, differs=[], versions={})


def about(**more: Any) -> About:
    """What is known besides the runs."""
    known: dict[str, Any] = {
        "profile": "compare-50",
        "seed": 1,
        "machine": "f1fea1caff9ec4b2",
        "session": "compare-20261123-120000",
        "base": side("v1", "a" * 40),
        "head": side("v2", "b" * 40),
    }
    return About(**{**known, **more})


def compared(pairs: Sequence[PairMeasures], voids: Sequence[Void] = (), **more: Any) -> Comparison:
    """Their comparison."""
    return compare(about(**more), pairs, voids, PLAN)
