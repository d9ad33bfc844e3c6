"""summary.json: the schema of a run's results, for gates, reports and comparisons.

Keys are camelCase and keep their order. A quantile is a number; `{"atLeast": seconds}` if it is a
lower bound, with `requiredSampleSize` and `effectiveSampleSize` if the sample is too small; or
null without data. An interval is a pair of those. What was not measured is null or empty.

Version 2 added intervals, `needs`, `each` of gates, `anchors`, `bare`, `selfAudit`, `diagnosis`,
`knee`, `requests`, `waitBands` and `sideBySide`, and quantiles of hops that may be bounds.
Version 3 draws objects where version 2 drew pods, so it knows fewer percentiles and its intervals
are wider; it added `has` and `p90Interval`.
Version 5 added `dueToBindSeconds`, the headline, beside `bindLatencySeconds`, which begins with a
pod's creation; phases, hops, wait bands, curves and gangs count from due times.
"""

from __future__ import annotations

from typing import Any

import msgspec

from loaddriver.judge.applicability import NotApplicable
from loaddriver.judge.audit_section import Audit
from loaddriver.judge.cost import FleetCost
from loaddriver.judge.disruptions import Disruptions
from loaddriver.judge.federation.section import FederationSection
from loaddriver.judge.gangs import Gangs
from loaddriver.judge.gates import GateResult
from loaddriver.judge.interruptions import Interruptions
from loaddriver.judge.milestones import Milestones
from loaddriver.judge.percentiles import Quantile, Quantiles
from loaddriver.judge.price_following import PriceFollowing
from loaddriver.judge.resources import Resources
from loaddriver.judge.stability import Stability
from loaddriver.judge.timeline import Timeline
from loaddriver.record.provenance import Provenance

SCHEMA = "bigfleet.scaletest/v5"


class Section(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The base of the summary's parts."""


class Run(Section, frozen=True, kw_only=True):
    """The identity of the run; times are seconds since 1970.

    `anchors` is on, off, or "" if it does not apply. `system` is the autoscaler under test, none
    if there is none. A `bare` run has "", but all nodes of the run `bareOf` from the start.
    `atOnce`: another run of its comparison was played at the same time.
    """

    id: str
    profile: str
    seed: int
    substrate: str
    anchors: str
    bare: bool
    bare_of: str
    system: str = "bigfleet"
    at_once: bool = False
    started_unix_seconds: float
    soak_started_unix_seconds: float | None
    duration_seconds: float
    versions: dict[str, str]
    environment: dict[str, str]


class Pods(Section, frozen=True, kw_only=True):
    """`created` is `bound` plus `neverBound`; `withdrawn` of the latter were deleted unbound.

    `neverCreated` were due and wanted until the end. `withoutDueTime` were created although the
    plan did not ask for them (they replace evicted or failed pods, or an HPA did): their waits
    begin with their creation.
    """

    planned: int
    created: int
    bound: int
    never_bound: int
    withdrawn: int
    never_created: int
    without_due_time: int


class Requests(Section, frozen=True, kw_only=True):
    """CapacityRequests of a load without pods, and their time to acknowledgement.

    `dueToAckSeconds` begins with their due times, `ackLatencySeconds` with their creation.
    `created` is `acknowledged` plus `neverAcknowledged`; `withdrawn` of the latter were deleted.
    """

    planned: int
    created: int
    acknowledged: int
    never_acknowledged: int
    withdrawn: int
    due_to_ack_seconds: Quantiles
    ack_latency_seconds: Quantiles
    clusters: dict[str, Quantiles]


class Slice(Section, frozen=True, kw_only=True):
    """A subset of the pods, such as those of an archetype; `pods` are the created ones."""

    pods: int
    bound: int
    never_bound: int
    never_created: int
    due_to_bind_seconds: Quantiles
    bind_latency_seconds: Quantiles


class Phase(Slice, frozen=True, kw_only=True):
    """The pods due in a phase, its length, and the largest backlog within it."""

    seconds: float
    backlog_max: int


class OpenStage(Phase, frozen=True, kw_only=True):
    """A phase with its bound pods by whether their node was ready before them: its waits are gated,
    and the median of both kinds is that of neither.
    """

    placement: dict[str, Slice] = {}


class Hop(Section, frozen=True, kw_only=True):
    """One stage of the waits of bound pods, in seconds.

    Quantiles are over the `pods` that have it; `mean` is over all bound pods, so that the means of
    all hops add up to the mean wait.
    """

    p50: Quantile
    p90: Quantile
    p99: Quantile
    max: Quantile
    mean: float
    pods: int


class Band(Section, frozen=True, kw_only=True):
    """Pods with similar waits; their mean wait in seconds, and its hops, which add up to it."""

    pods: int
    wait_seconds: float
    hops_seconds: dict[str, float]


class Machines(Section, frozen=True, kw_only=True):
    """Numbers of machines that joined, were created and were deleted, and the `source`."""

    configured: int
    created: int | None
    deleted: int | None
    source: str


class Nodes(Section, frozen=True, kw_only=True):
    """Node objects: created and deleted over the run, most ready at once, ready at its end."""

    created: int
    deleted: int
    ready_max: int
    ready_at_end: int


class Backlog(Section, frozen=True, kw_only=True):
    """Pods without a node."""

    max: int
    at_end: int


class SelfCheck(Section, frozen=True, kw_only=True):
    """A self-check: its value, its limit (null: informational) and the reason for the limit.

    A `value` of null was not measured, and is not within any limit. With `overload`, an overloaded
    system under test can cause an excess; with `starved`, only by taking the harness's cores.
    """

    value: float | None
    unit: str
    what: str
    limit: float | None = None
    within: bool = True
    reason: str = ""
    overload: bool = False
    starved: bool = False


class Bare(Section, frozen=True, kw_only=True):
    """The paired run without BigFleet, and the ratios of this run's numbers to its.

    `ratios` are keyed by `dueToBind`, `bind` (creation to binding) and hop, then by p50, p90, p99
    and mean; null if either is not a number.
    """

    id: str
    verdict: str
    due_to_bind_seconds: Quantiles
    bind_latency_seconds: Quantiles
    hops_seconds: dict[str, Hop]
    ratios: dict[str, dict[str, float | None]]


class GangSide(Section, frozen=True, kw_only=True):
    """The gangs of one of two runs of a plan. `stuck` gangs were never complete.

    A run that is not `valid` is invalid or aborted, and not comparable.
    """

    id: str
    anchors: str
    valid: bool
    gangs: int
    stuck: int
    anchored: int
    scheduler_first: int
    unplaced: int
    complete_share: float | None
    rack_pure_share: float | None
    due_to_bind_seconds: Quantiles
    bind_latency_seconds: Quantiles
    completion_seconds: Quantiles
    partial_seconds: Quantiles


class Summary(Section, frozen=True, kw_only=True):
    """The whole file. `failures` are the runner's findings besides the gates, `invalid_reasons` why
    the measurement is invalid.

    `ramp` ends where the `openStage` begins, if there is one, else with the soak.
    `diagnosis` has sentences on what pods waited for, most important first, for any verdict.
    `sideBySide` has this run and the other one of the same plan, with and without anchors.
    """

    schema: str
    verdict: str
    exit_code: int
    why: list[str]
    diagnosis: list[str]
    failures: list[str]
    invalid_reasons: list[str]
    run: Run
    provenance: Provenance | None = None
    pods: Pods
    requests: Requests | None
    due_to_bind_seconds: Quantiles
    bind_latency_seconds: Quantiles
    ramp: Phase
    open_stage: OpenStage | None
    soak: Phase | None
    backlog: Backlog
    placement: dict[str, Slice]
    hops_seconds: dict[str, Hop]
    milestones: Milestones | None
    wait_bands: dict[str, Band]
    gangs: Gangs
    machines: Machines
    nodes: Nodes
    disruptions: Disruptions | None = None
    stability: Stability | None = None
    cost: FleetCost | None = None
    prices: PriceFollowing | None = None
    interruptions: Interruptions | None = None
    resources: Resources | None = None
    federation: FederationSection | None = None
    archetypes: dict[str, Slice]
    clusters: dict[str, Slice]
    gates: list[GateResult]
    not_applicable: NotApplicable | None = None
    knee: dict[str, Any] | None
    bare: Bare | None
    side_by_side: list[GangSide]
    self_checks: dict[str, SelfCheck]
    audit: Audit
    load: dict[str, Any]
    components: dict[str, Any]
    curves: dict[str, list[tuple[float, float]]]
    timeline: Timeline


OVERALL = "all"
"""The name of the curve over all pods, besides those by archetype."""
