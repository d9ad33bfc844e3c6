"""A profile's fleet: how many machines of each type are available, and their latencies."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from loaddriver.profile.archetypes import Count, DnsLabel, NotNegative, Positive, TypeName
from loaddriver.profile.catalog import Catalog
from loaddriver.profile.decoding import ConfigStruct
from loaddriver.profile.instance_types import InstanceType, Taint

CapacityTypeName = Literal["bareMetal", "reserved", "onDemand", "spot"]
Machines = Annotated[int, msgspec.Meta(ge=0)]


class LatencyDistribution(ConfigStruct, frozen=True, kw_only=True):
    """A log-normal delay in seconds, by its median and 99th percentile."""

    median: Positive
    p99: Positive


class MachineLatency(ConfigStruct, frozen=True, kw_only=True):
    """The fake provider's delay for each transition: a constant or a distribution."""

    create_seconds: NotNegative | LatencyDistribution
    configure_seconds: NotNegative | LatencyDistribution
    drain_seconds: NotNegative | LatencyDistribution
    delete_seconds: NotNegative | LatencyDistribution


class SupplyEntry(ConfigStruct, frozen=True, kw_only=True):
    """The number of machines of each named type, and of each type of the named families, per zone.

    `idle` machines exist, `speculative` ones can be created. Reserved machines are already paid
    for, so using one costs nothing extra. All carry `taints` in addition to those of their type.
    """

    families: tuple[DnsLabel, ...] = ()
    instance_types: tuple[TypeName, ...] = ()
    zones: Annotated[tuple[DnsLabel, ...], msgspec.Meta(min_length=1)]
    capacity_type: Literal["onDemand", "spot", "reserved"]
    idle: Machines = 0
    speculative: Machines = 0
    taints: tuple[Taint, ...] = ()

    def matching_types(self, catalog: Catalog) -> tuple[InstanceType, ...]:
        """Its instance types, in the catalog's order."""
        return tuple(
            instance_type
            for instance_type in catalog.instance_types
            if instance_type.family in self.families or instance_type.name in self.instance_types
        )


class ProviderEntry(ConfigStruct, frozen=True, kw_only=True):
    """A provider process and its part of the fleet: the machines of its capacity types, and of its
    `zones` and `instanceTypes` if it names any. Owned dedicated machines are bareMetal.
    """

    name: DnsLabel
    capacity_types: Annotated[tuple[CapacityTypeName, ...], msgspec.Meta(min_length=1)]
    zones: tuple[DnsLabel, ...] = ()
    instance_types: tuple[TypeName, ...] = ()

    def has(self, capacity_type: str, zone: str, instance_type: str) -> bool:
        """Whether such a machine is in its part."""
        return (
            capacity_type in self.capacity_types
            and (not self.zones or zone in self.zones)
            and (not self.instance_types or instance_type in self.instance_types)
        )


class RunningProvider(ConfigStruct, frozen=True, kw_only=True):
    """A provider that is not the harness's and runs already, at `address` (HOST:PORT).

    `identities` is a folder that `bigfleet certs` made: the certificates of the run come from its
    authority, which the provider must trust. In the folder `kubeconfigs` the run writes, for as
    long as it lasts, an access to the Nodes of each of its clusters: CLUSTER.kubeconfig.
    """

    address: str = ""
    identities: str = ""
    kubeconfigs: str | None = None


class PriceMoves(ConfigStruct, frozen=True, kw_only=True):
    """Prices that move `number` times in the soak, first `atSeconds` into it, then `everySeconds`.

    At each move every kind (instance type and zone) of the named capacity types gets a new price:
    its own times a random factor from `lowestFactor` to `highestFactor`, whose logarithm is
    uniformly distributed.
    """

    at_seconds: NotNegative = 0.0
    every_seconds: Positive
    number: Count
    lowest_factor: Positive
    highest_factor: Positive
    capacity_types: Annotated[
        tuple[Literal["onDemand", "spot"], ...], msgspec.Meta(min_length=1)
    ] = ("onDemand", "spot")

    @property
    def times_seconds(self) -> tuple[float, ...]:
        """When the prices move, in seconds into the soak."""
        return tuple(self.at_seconds + n * self.every_seconds for n in range(self.number))


class KindInterruptions(ConfigStruct, frozen=True, kw_only=True):
    """`number` interruptions of spot machines in the soak, each of one kind (instance type and
    zone), first `atSeconds` into it, then `everySeconds`.

    Machines of the kind are given notice, `noticeSeconds` later they are gone, and for
    `downSeconds` after that there are none of the kind. Kinds take turns in random order.
    """

    at_seconds: NotNegative = 0.0
    every_seconds: Positive
    number: Count
    notice_seconds: NotNegative
    down_seconds: NotNegative

    @property
    def times_seconds(self) -> tuple[float, ...]:
        """When notice is given, in seconds into the soak."""
        return tuple(self.at_seconds + n * self.every_seconds for n in range(self.number))

    @property
    def length_seconds(self) -> float:
        """From a notice until the kind is back."""
        return self.notice_seconds + self.down_seconds

    @property
    def kinds_at_once(self) -> int:
        """How many kinds may be interrupted at the same time."""
        return max(1, math.ceil(self.length_seconds / self.every_seconds))


class FleetSettings(ConfigStruct, frozen=True, kw_only=True):
    """The supply of machines.

    Dedicated machines are multiples of the machines that each pod size needs: idle ones exist,
    speculative ones can be created, spot ones are cheaper and may be reclaimed. Shared machines are
    counted by `supply`.

    Spot machines are reclaimed at their hourly probability, with `spotMarketHoursPerSecond` hours
    passing per second. A rack holds `machinesPerRack` machines, of one pod size or of all types in
    its zone. `scarce` states that less supply than demand is intended. `idleFactorByArchetype`
    overrides the idle factor of single archetypes: with 0, their pods get only what other
    archetypes leave of the machines that both accept. Each of the `providers` serves a part of the
    fleet; without any, one serves all of it. With a `runningProvider` the fleet is what that lists,
    and the counts above are not used. `prices` move and `interruptions` come as they say.
    """

    idle_factor: NotNegative | None = None
    speculative_factor: NotNegative | None = None
    spot_factor: NotNegative = 0.0
    spot_market_hours_per_second: NotNegative = 0.0
    machines_per_rack: Count
    latency: MachineLatency
    scarce: bool = False
    idle_factor_by_archetype: dict[str, NotNegative] = msgspec.field(default_factory=dict)
    supply: tuple[SupplyEntry, ...] = ()
    providers: tuple[ProviderEntry, ...] = ()
    running_provider: RunningProvider | None = None
    prices: PriceMoves | None = None
    interruptions: KindInterruptions | None = None

    @property
    def identities(self) -> Path | None:
        """The folder with the authority of all parts of the run; None for one of its own."""
        return Path(self.running_provider.identities) if self.running_provider else None

    @property
    def market_key(self) -> str:
        """The key by which prices or supply change while the load runs; "" if there is none."""
        if self.prices is not None:
            return "fleet.prices"
        return "fleet.interruptions" if self.interruptions is not None else ""
