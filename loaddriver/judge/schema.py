"""summary.json: every number of a run that a gate, a report or a comparison may use.

Keys are camelCase and keep their order. A quantile is a number, `{"atLeast": seconds}` where waits
without an end leave it open, or null without data. What was not measured is null or empty.
"""

from __future__ import annotations

from typing import Any

import msgspec

from loaddriver.judge.gangs import Gangs
from loaddriver.judge.gates import GateResult
from loaddriver.judge.percentiles import Quantiles
from loaddriver.judge.timeline import Timeline

SCHEMA = "bigfleet.scaletest/v1"


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The base of the summary's parts."""


class Run(Part, frozen=True, kw_only=True):
    """Which run this is; moments are seconds since 1970."""

    id: str
    profile: str
    seed: int
    substrate: str
    started_unix_seconds: float
    soak_started_unix_seconds: float | None
    duration_seconds: float
    versions: dict[str, str]
    environment: dict[str, str]


class Pods(Part, frozen=True, kw_only=True):
    """`created` is `bound` plus `neverBound`; `withdrawn` of the latter were deleted unbound."""

    planned: int
    created: int
    bound: int
    never_bound: int
    withdrawn: int


class Slice(Part, frozen=True, kw_only=True):
    """Some of the pods, such as one archetype's."""

    pods: int
    bound: int
    never_bound: int
    bind_latency_seconds: Quantiles


class Phase(Slice, frozen=True, kw_only=True):
    """The pods created in a phase, and the largest backlog within it."""

    seconds: float
    backlog_max: int


class Hop(Part, frozen=True, kw_only=True):
    """One part of the waits of bound pods, in seconds.

    Quantiles are over the `pods` that have it; `mean` is over all bound pods, so that the means of
    all hops add up to the mean wait.
    """

    p50: float
    p90: float
    p99: float
    max: float
    mean: float
    pods: int


class Machines(Part, frozen=True, kw_only=True):
    """How many machines joined, came into being and were given back; `source` says who counted."""

    configured: int
    created: int | None
    deleted: int | None
    source: str


class Nodes(Part, frozen=True, kw_only=True):
    """Node objects: created and deleted over the run, most ready at once, ready at its end."""

    created: int
    deleted: int
    ready_max: int
    ready_at_end: int


class Backlog(Part, frozen=True, kw_only=True):
    """Pods without a node."""

    max: int
    at_end: int


class WatchHealth(Part, frozen=True, kw_only=True):
    """Gaps of the harness's own watches."""

    resumed: int
    listed: int


class Clock(Part, frozen=True, kw_only=True):
    """Receipt by watch minus the audit log's stamp."""

    samples: int
    median_seconds: float | None
    p99_seconds: float | None
    min_seconds: float | None


class Audit(Part, frozen=True, kw_only=True):
    """The measurement of itself.

    `missed_pods` and `missed_bindings` were seen by the watch and are not in the log.
    """

    available: bool
    lines: int
    undecodable: int
    nameless: int
    restarts: int
    missed_pods: int
    missed_bindings: int
    bound_by: dict[str, int]
    requests: dict[str, int]
    failed_requests: dict[str, int]
    watch: WatchHealth
    clock: Clock
    journal_undecodable: int | None


class Summary(Part, frozen=True, kw_only=True):
    """The whole file. `failures` are what the runner found wrong beside the gates."""

    schema: str
    verdict: str
    exit_code: int
    why: list[str]
    failures: list[str]
    run: Run
    pods: Pods
    bind_latency_seconds: Quantiles
    ramp: Phase
    soak: Phase | None
    backlog: Backlog
    placement: dict[str, Slice]
    hops_seconds: dict[str, Hop]
    gangs: Gangs
    machines: Machines
    nodes: Nodes
    archetypes: dict[str, Slice]
    clusters: dict[str, Slice]
    gates: list[GateResult]
    audit: Audit
    load: dict[str, Any]
    components: dict[str, Any]
    curves: dict[str, list[tuple[float, float]]]
    timeline: Timeline


OVERALL = "all"
"""The name of the curve over all pods, beside those by archetype."""
