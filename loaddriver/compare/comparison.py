"""The result of a comparison: the schema of comparison.json, and what all outputs show."""

from __future__ import annotations

from typing import Literal

import msgspec

SCHEMA = "bigfleet.compare/v1"
Verdict = Literal["regression", "improvement", "same", "not enough data", "not measured"]
Objection = Literal["", "at once", "unknown", "disagreement", "writes"]
Pairing = Literal["interleaved", "at once", "on disk"]
"""How the runs of a pair met the machine: one after the other in random order, both at the same
time, or at times that nobody chose.
"""
Overall = Literal["regression", "not worse", "not enough data", "too many voids"]


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The base of the records of this package: keys are camelCase and keep their order."""


class Side(Record, frozen=True, kw_only=True):
    """One of the two systems under test, and how it differs from the harness's own checkout."""

    label: str
    revision: str
    dirty: bool | None
    differs: list[str]
    versions: dict[str, str]


class EndpointResult(Record, frozen=True, kw_only=True):
    """A primary endpoint. Percentages are of BASE, positive if HEAD is slower or dearer.

    `base_mean` and `head_mean` are geometric means over runs, `base_runs` and `head_runs` the
    values of each, in pairs. `interval_percent` is that of the look's error for a difference;
    `pair_deviation` is of log ratios. `tail` is one-sided, for HEAD being worse, by Student's t;
    `sign_flip_tail` by all relabellings. `pairs_to_settle` is null if decided, or out of reach.
    `attributed` is the part of a change that carries at least half of it, "" if none does.
    """

    key: str
    name: str
    unit: str
    verdict: Verdict
    base_mean: float | None
    head_mean: float | None
    effect_percent: float | None
    interval_percent: tuple[float, float] | None
    pair_deviation: float | None
    tail: float | None
    sign_flip_tail: float | None
    pairs_to_settle: int | None
    attributed: str
    base_runs: list[float]
    head_runs: list[float]


class EventResult(Record, frozen=True, kw_only=True):
    """Something that must not happen, counted, and the runs that had it, with Fisher's test."""

    key: str
    name: str
    verdict: Verdict
    base_count: int
    head_count: int
    base_runs: int
    head_runs: int
    tail: float


class Voids(Record, frozen=True, kw_only=True):
    """Runs without a valid measurement, each of which discarded its pair.

    `tail` is that of a fair coin for as many on HEAD's side; at `limit` of both sides a session
    ends.
    """

    base: int
    head: int
    limit: int
    tail: float
    reasons: list[str]


class PartChange(Record, frozen=True, kw_only=True):
    """A hop (seconds per pod) or a component's CPU (ms per pod): means over valid pairs."""

    name: str
    unit: str
    base: float
    head: float


class Described(Record, frozen=True, kw_only=True):
    """A number that describes, and decides nothing: medians over runs."""

    name: str
    base: float | None
    head: float | None


class Fact(Record, frozen=True, kw_only=True):
    """Something that needs no statistics: the same seeds, snapshots or counts of both sides.

    `changed` is null if it could not be established; `lines` show the difference.
    """

    name: str
    changed: bool | None
    sentence: str
    lines: list[str]


class MachineSpeed(Record, frozen=True, kw_only=True):
    """How much slower the machine was for HEAD, by the CPU per pod of components that both sides
    share: `components` have the change of each, in percent.

    `unusable` is why endpoints that take CPU are not relative to it: both sides ran at once, too
    little is known, the components disagree, or the writes per pod changed, so that HEAD may make
    all of them do more.
    It is "" if they are. Waits of runs that were not interleaved are not judged at all if the speed
    differed (`waits_left_out`): how they depend on it is not known.
    """

    components: dict[str, float]
    unusable: Objection
    slower_percent: float
    waits_left_out: bool = False

    @property
    def used(self) -> bool:
        """Whether endpoints that take CPU are relative to it."""
        return not self.unusable


class Errors(Record, frozen=True, kw_only=True):
    """The stated errors: how often equal systems may be called a regression, and how it is spent.

    `difference` and `equivalence` are one-sided, for one endpoint at one look.
    """

    family: float
    difference: float
    equivalence: float
    event: float
    looks: list[int]
    least_effect_percent: float


class Comparison(Record, frozen=True, kw_only=True):
    """A comparison of HEAD with BASE. `attributed` is that of the clearest regression.

    `warnings` come first on every page: what was forced, and what makes the pairs weaker.
    """

    schema: str = SCHEMA
    verdict: Overall
    exit_code: int
    why: list[str]
    warnings: list[str]
    attributed: str
    profile: str
    seed: int
    machine: str
    session: str
    pairs: int
    pairing: Pairing = "interleaved"
    errors: Errors
    speed: MachineSpeed
    base: Side
    head: Side
    endpoints: list[EndpointResult]
    events: list[EventResult]
    voids: Voids
    parts: list[PartChange]
    described: list[Described]
    facts: list[Fact]


def json_schema() -> bytes:
    """The JSON Schema of comparison.json."""
    return msgspec.json.format(msgspec.json.encode(msgspec.json.schema(Comparison)), indent=2)
