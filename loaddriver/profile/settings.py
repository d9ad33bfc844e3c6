"""What a run does and what it must reach: profiles/<name>/profile.yaml and expect.yaml.

Strict on purpose: a key that does nothing, or a number in the wrong unit, makes
a run that measures something else than its author thinks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from loaddriver.errors import ProfileError
from loaddriver.profile.archetypes import Count, DnsLabel, NotNegative, Share
from loaddriver.profile.catalog import DEFAULT, Catalog, load_catalog
from loaddriver.profile.checks import settings_errors
from loaddriver.profile.decoding import ConfigStruct, FieldError, decode
from loaddriver.profile.federation import FederationSettings
from loaddriver.profile.fleet import FleetSettings
from loaddriver.profile.hints import did_you_mean
from loaddriver.profile.overrides import apply_overrides
from loaddriver.profile.yaml_reader import read_yaml


class BigfleetSettings(ConfigStruct, frozen=True, kw_only=True):
    """The settings of the system under test that change what is measured.

    Several `shards` share the machines and clusters, kept apart by a coordinator of so many
    `coordinators`. Without any, the one shard owns everything.
    """

    cycle_seconds: Positive
    rollup_seconds: Positive
    reclaim_cap_fraction: Share
    reclaim_hold_seconds: Seconds
    idle_hold_seconds: Seconds
    unschedulable_delay_seconds: Seconds = 15.0
    node_ready_timeout_seconds: Seconds = 300.0
    shards: Annotated[int, msgspec.Meta(ge=1, le=8)] = 1
    coordinators: Literal[0, 1, 3] = 0


Seconds = Annotated[float, msgspec.Meta(ge=0)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
Sentence = Annotated[str, msgspec.Meta(min_length=10)]
# Keys of the summary, archetypes among them, or * for each of them.
_METRIC = r"^[A-Za-z][A-Za-z0-9]*(\.([-A-Za-z0-9]+|\*))*$"


class Load(ConfigStruct, frozen=True, kw_only=True):
    """What the load driver creates: objects whose controllers make pods, or, in `cr` mode, one
    CapacityRequest for each planned pod. Then there are no pods, and nothing binds.
    """

    mode: Literal["pods", "cr"] = "pods"


class Ramp(ConfigStruct, frozen=True, kw_only=True):
    """From an empty cluster to all pods, in steps.

    `hold` releases a step once the one before bound well (backlog and p99 within
    their limits), `observe` at fixed times whatever happens, `knee` makes each step faster than
    the one before, and ends the run where binding no longer keeps up. A step's requests are
    spread over `stepSeconds`; the whole ramp has `budgetSeconds`.
    """

    pacing: Literal["adaptive", "fixed", "knee"]
    steps: Count
    step_seconds: Positive
    max_backlog_pods: Annotated[int, msgspec.Meta(ge=0)]
    max_step_p99_seconds: Positive
    budget_seconds: Positive


class ChurnBurst(ConfigStruct, frozen=True, kw_only=True):
    """Deletions that come in bunches: `factor` times as many as else in each second of a bunch.

    Bunches last `seconds` and begin at Poisson moments, one in `everySeconds` on average. The mean
    rate of the churn stays as it is.
    """

    every_seconds: Positive
    seconds: Positive
    factor: Annotated[float, msgspec.Meta(gt=1)]


class Soak(ConfigStruct, frozen=True, kw_only=True):
    """The judged phase: full load, and pods deleted (and so recreated) at a steady rate.

    The rate is over all clusters together, and over all reasons: deletions by
    `meanLifetimeSeconds` of an archetype are part of it.
    """

    seconds: Seconds
    churn_pods_per_second: NotNegative
    churn_burst: ChurnBurst | None = None


class Burst(ConfigStruct, frozen=True, kw_only=True):
    """Extra objects that come `atSeconds` after the begin of a phase and go `durationSeconds`
    later.

    `pods` are over all clusters together, or all in `cluster`. An archetype with gangs comes in
    whole gangs, each in one cluster. In a ramp that is held, a burst moves with the step that it
    falls into.
    """

    phase: Literal["ramp", "soak"]
    at_seconds: Seconds
    archetype: str
    pods: Count
    duration_seconds: Positive
    cluster: str | None = None


class DemandStep(ConfigStruct, frozen=True, kw_only=True):
    """From `atSeconds` on, demand is `factor` times what the ramp built up.

    Deployments and StatefulSets are scaled; gangs and Jobs come and go as a whole. Only the soak
    can have one: while the ramp goes on, the ramp says what demand there is.
    """

    phase: Literal["soak"]
    at_seconds: Seconds
    factor: NotNegative


class ProfileSettings(ConfigStruct, frozen=True, kw_only=True):
    """profile.yaml, key by key. `clusterWeights` are by cluster (`c1` is the first), in the place
    of `weights`. With `metrics: resource` clusters have HPAs that know what pods use. A
    `federation` plays its phases in the soak, which then is `soak.seconds` longer than they are.
    `catalog` names the file of archetypes and machines, `profiles/<catalog>.yaml`.
    """

    description: Sentence
    seed: Annotated[int, msgspec.Meta(ge=0)]
    clusters: Count
    pods_per_cluster: Count
    weights: str | dict[str, NotNegative]
    fleet: FleetSettings
    ramp: Ramp
    soak: Soak
    anchors: Literal["on", "off", "both"]
    bigfleet: BigfleetSettings
    load: Load = msgspec.field(default_factory=Load)
    bursts: tuple[Burst, ...] = ()
    demand_steps: tuple[DemandStep, ...] = ()
    cluster_weights: dict[str, str | dict[str, NotNegative]] = msgspec.field(default_factory=dict)
    metrics: Literal["none", "resource"] = "none"
    federation: FederationSettings | None = None
    catalog: DnsLabel = DEFAULT

    @property
    def cluster_names(self) -> tuple[str, ...]:
        """Names by cluster number, in the order of the plan."""
        return tuple(f"c{number + 1}" for number in range(self.clusters))

    def weights_in(self, cluster: int) -> str | dict[str, float]:
        """What the cluster of that number runs."""
        return self.cluster_weights.get(f"c{cluster + 1}", self.weights)

    @property
    def resource_metrics(self) -> bool:
        """Whether clusters know what pods use."""
        return self.metrics == "resource"

    @property
    def pods(self) -> int:
        """The pods that the ramp builds up to, over all clusters."""
        return self.clusters * self.pods_per_cluster

    @property
    def max_pods(self) -> int:
        """As many as there can be at once, should all bursts fall together."""
        highest = max((step.factor for step in self.demand_steps), default=1.0)
        return math.ceil(self.pods * max(1.0, highest)) + sum(each.pods for each in self.bursts)

    def phase_seconds(self, phase: Literal["ramp", "soak"]) -> float:
        """The planned length of a phase."""
        return self.ramp.steps * self.ramp.step_seconds if phase == "ramp" else self.soak.seconds


class Gate(ConfigStruct, frozen=True, kw_only=True):
    """A limit on one number of the summary (dotted path), and why it is that limit.

    A `*` in the path stands for every name there, such as every archetype: all must hold. With
    `ratioTo: bare` the limit is on that number divided by the paired bare run's.
    """

    name: str
    metric: Annotated[str, msgspec.Meta(pattern=_METRIC)]
    op: Literal["<=", ">=", "=="]
    limit: float
    unit: str
    origin: Sentence
    ratio_to: Literal["bare"] | None = None


class Expectations(ConfigStruct, frozen=True, kw_only=True):
    """expect.yaml."""

    gates: Annotated[tuple[Gate, ...], msgspec.Meta(min_length=1)]


@dataclass(frozen=True)
class Profile:
    """A profile with everything it refers to, checked."""

    name: str
    settings: ProfileSettings
    gates: tuple[Gate, ...]
    catalog: Catalog


def profile_names(profiles_dir: Path) -> tuple[str, ...]:
    """The profiles that `profiles_dir` holds."""
    return tuple(sorted(path.parent.name for path in profiles_dir.glob("*/profile.yaml")))


def load_profile(
    name: str, profiles_dir: Path, overrides: Sequence[str] = (), seed: int | None = None
) -> Profile:
    """The profile called `name`, after `overrides` ("dotted.key=yaml value") and `seed`.

    Raises ProfileError with every mistake in profile.yaml, expect.yaml, the
    catalog and the overrides.
    """
    known = profile_names(profiles_dir)
    if name not in known:
        raise ProfileError([f"there is no profile {name!r}{did_you_mean(name, known)}"])
    where = f"{name}/profile.yaml"
    raw = read_yaml(profiles_dir / name / "profile.yaml", where)
    raw, changed = apply_overrides(raw, overrides, seed, where)
    catalog = load_catalog(profiles_dir, name, _common_catalog(raw, profiles_dir, where))
    settings, problems = decode(raw, ProfileSettings)
    if settings is not None:
        settings = _with_federation_seconds(settings)
        problems = settings_errors(settings, catalog)
    lines = [_line(problem, where, changed) for problem in problems]
    gates, gate_lines = _gates(profiles_dir / name / "expect.yaml", f"{name}/expect.yaml")
    if settings is None or lines or gate_lines:
        raise ProfileError([*lines, *gate_lines])
    return Profile(name, settings, gates, catalog)


def _common_catalog(raw: Any, profiles_dir: Path, where: str) -> str:
    """Which catalog the profile names; one that is no name is left to the settings' own check."""
    named = raw.get("catalog", DEFAULT) if isinstance(raw, dict) else DEFAULT
    if not isinstance(named, str):
        return DEFAULT
    known = [path.stem for path in profiles_dir.glob("*.yaml")]
    if named not in known:
        hint = did_you_mean(named, known)
        raise ProfileError([f"{where}: catalog = {named!r}: no profiles/{named}.yaml{hint}"])
    return named


def _with_federation_seconds(settings: ProfileSettings) -> ProfileSettings:
    """The soak is as long as the federation's phases and its own seconds together."""
    if settings.federation is None:
        return settings
    seconds = settings.federation.seconds + settings.soak.seconds
    soak = msgspec.structs.replace(settings.soak, seconds=seconds)
    return msgspec.structs.replace(settings, soak=soak)


def load_gates(path: Path) -> tuple[Gate, ...]:
    """The gates of an expectation file anywhere. Raises ProfileError."""
    gates, lines = _gates(path, str(path))
    if lines:
        raise ProfileError(lines)
    return gates


def _gates(path: Path, where: str) -> tuple[tuple[Gate, ...], list[str]]:
    try:
        raw: Any = read_yaml(path, where)
    except ProfileError as error:
        return (), list(error.problems)
    expectations, problems = decode(raw, Expectations)
    if expectations is None:
        return (), [_line(problem, where, ()) for problem in problems]
    names = [gate.name for gate in expectations.gates]
    repeated = sorted({name for name in names if names.count(name) > 1})
    return expectations.gates, [f"{where}: two gates are called {name!r}" for name in repeated]


def _line(problem: FieldError, where: str, changed: Sequence[str]) -> str:
    """A problem as one line; blames SET or SEED when that is where the value came from."""
    touched = any(problem.path == path or problem.path.startswith(f"{path}.") for path in changed)
    origin = f"{where} (overridden on the command line)" if touched else where
    return f"{origin}: {problem.path} {problem.text}"
