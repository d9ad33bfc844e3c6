"""What is played on the wire: the records of profiles/<name>/wire.yaml."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from loaddriver.errors import ProfileError
from loaddriver.profile.archetypes import Count, NotNegative, Positive, Sentence, Share
from loaddriver.profile.bigfleet import BigfleetSettings
from loaddriver.profile.catalog import Catalog
from loaddriver.profile.checks import settings_errors
from loaddriver.profile.decoding import ConfigStruct, FieldError, decode
from loaddriver.profile.fleet import FleetSettings, MachineLatency
from loaddriver.profile.gates import Gate, load_gates
from loaddriver.profile.hints import did_you_mean
from loaddriver.profile.loading import Profile, load_catalog
from loaddriver.profile.overrides import apply_overrides
from loaddriver.profile.settings import Fault, ProfileSettings, Ramp, Soak
from loaddriver.profile.yaml_reader import read_yaml

_FILE = "wire.yaml"


class WireFleet(ConfigStruct, frozen=True, kw_only=True):
    """Machines, as multiples of those that the pods need: idle ones exist, speculative ones can be
    created. All orders are carried out at once.
    """

    idle_factor: NotNegative
    speculative_factor: NotNegative
    machines_per_rack: Count


_AT_ONCE = MachineLatency(
    create_seconds=0.0, configure_seconds=0.0, drain_seconds=0.0, delete_seconds=0.0
)


class WireSettings(ConfigStruct, frozen=True, kw_only=True):
    """wire.yaml.

    Demand is drawn for `distinctClusters` as for a run's clusters; the others repeat it. Clusters
    connect evenly within `connectSeconds`, and all that they request must be in service within
    `fillBudgetSeconds`. In the soak that follows, each roll-up has other pod counts in
    `changedNeedsShare` of its needs, and `lostMachinesPerMinute` of the machines in service fail,
    and come back a minute later. Shards are killed by `faults`, and may join later.
    """

    description: Sentence
    seed: Annotated[int, msgspec.Meta(ge=0)]
    clusters: Count
    distinct_clusters: Count
    pods_per_cluster: Count
    weights: str | dict[str, NotNegative]
    fleet: WireFleet
    bigfleet: BigfleetSettings
    connect_seconds: Positive
    fill_budget_seconds: Positive
    soak_seconds: Positive
    changed_needs_share: Share
    lost_machines_per_minute: Share
    faults: tuple[Fault, ...] = ()

    def of_distinct_clusters(self) -> ProfileSettings:
        """A profile of the distinct clusters, from which demand and machines follow."""
        return ProfileSettings(
            description=self.description,
            seed=self.seed,
            clusters=self.distinct_clusters,
            pods_per_cluster=self.pods_per_cluster,
            weights=self.weights,
            fleet=FleetSettings(
                idle_factor=self.fleet.idle_factor,
                speculative_factor=self.fleet.speculative_factor,
                machines_per_rack=self.fleet.machines_per_rack,
                latency=_AT_ONCE,
            ),
            ramp=Ramp(
                pacing="fixed",
                steps=1,
                step_seconds=self.connect_seconds,
                max_backlog_pods=0,
                max_step_p99_seconds=1.0,
                budget_seconds=self.connect_seconds,
            ),
            soak=Soak(seconds=self.soak_seconds, churn_pods_per_second=0.0),
            anchors="off",
            bigfleet=self.bigfleet,
            faults=self.faults,
        )


@dataclass(frozen=True)
class WireProfile:
    """A valid wire.yaml with its gates. `distinct` is a profile of its distinct clusters."""

    name: str
    settings: WireSettings
    gates: tuple[Gate, ...]
    distinct: Profile

    @property
    def copies(self) -> int:
        """How many clusters have the demand of the first of the distinct ones."""
        return -(-self.settings.clusters // self.settings.distinct_clusters)


class _Played(msgspec.Struct, frozen=True, rename="camel"):
    """profile.json."""

    name: str
    settings: WireSettings
    catalog: Catalog


def save_profile(profile: WireProfile, path: Path) -> None:
    """Write what is played, overrides included."""
    played = _Played(profile.name, profile.settings, profile.distinct.catalog)
    path.write_bytes(msgspec.json.encode(played))


def read_profile(path: Path) -> WireProfile:
    """What `save_profile` has written, without gates."""
    played = msgspec.json.decode(path.read_bytes(), type=_Played)
    return _profile(played.name, played.settings, (), played.catalog)


def _profile(
    name: str, settings: WireSettings, gates: tuple[Gate, ...], catalog: Catalog
) -> WireProfile:
    distinct = Profile(name, settings.of_distinct_clusters(), gates, catalog)
    return WireProfile(name, settings, gates, distinct)


def wire_profile_names(profiles: Path) -> tuple[str, ...]:
    """The profiles that can be played on the wire, sorted."""
    return tuple(sorted(path.parent.name for path in profiles.glob(f"*/{_FILE}")))


def load_wire_profile(
    name: str, profiles: Path, overrides: tuple[str, ...] = (), seed: int | None = None
) -> WireProfile:
    """Load a profile with `overrides` ("dotted.key=yaml value") and `seed`. Raises ProfileError."""
    known = wire_profile_names(profiles)
    if name not in known:
        hint = did_you_mean(name, known) or f" (known: {', '.join(known)})"
        raise ProfileError([f"no profile {name!r} with a {_FILE}{hint}"])
    where = f"{name}/{_FILE}"
    raw, _ = apply_overrides(read_yaml(profiles / name / _FILE, where), overrides, seed, where)
    catalog = load_catalog(profiles, name)
    settings, errors = decode(raw, WireSettings)
    if settings is not None:
        errors = [*_errors(settings, catalog)]
    if settings is None or errors:
        raise ProfileError([f"{where}: {error.path} {error.text}" for error in errors])
    gates = load_gates(profiles / name / "expect.yaml", f"{name}/expect.yaml")
    return _profile(name, settings, gates, catalog)


def _errors(settings: WireSettings, catalog: Catalog) -> Iterator[FieldError]:
    """Contradictions between keys that are valid one by one."""
    if settings.distinct_clusters > settings.clusters:
        text = f"= {settings.distinct_clusters}: there are only {settings.clusters} clusters"
        yield FieldError("distinctClusters", text)
    if catalog.shares_machines:
        yield FieldError("weights", "need archetypes with machines of their own")
    for number, fault in enumerate(settings.faults):
        if fault.role not in settings.bigfleet.shard_names:
            names = ", ".join(settings.bigfleet.shard_names)
            yield FieldError(f"faults[{number}].role", f"= {fault.role}: only shards: {names}")
    if settings.bigfleet.leaving_shard is not None:
        yield FieldError("bigfleet.leavingShard", "is not played on the wire; remove it")
    yield from settings_errors(settings.of_distinct_clusters(), catalog)
