"""A profile's fleet: how many machines of which type stand ready, and how slow they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from loaddriver.profile.archetypes import Count, DnsLabel, NotNegative, Positive, TypeName
from loaddriver.profile.catalog import Catalog
from loaddriver.profile.decoding import ConfigStruct, FieldError
from loaddriver.profile.hints import did_you_mean
from loaddriver.profile.instance_types import InstanceType, Taint

if TYPE_CHECKING:
    from loaddriver.profile.settings import ProfileSettings

Machines = Annotated[int, msgspec.Meta(ge=0)]
_FACTORS = ("idleFactor", "speculativeFactor")


class LatencyDistribution(ConfigStruct, frozen=True, kw_only=True):
    """A log-normal delay, by its median and 99th percentile, in seconds."""

    median: Positive
    p99: Positive


class MachineLatency(ConfigStruct, frozen=True, kw_only=True):
    """How long the fake provider takes for each transition: a constant or a distribution."""

    create_seconds: NotNegative | LatencyDistribution
    configure_seconds: NotNegative | LatencyDistribution
    drain_seconds: NotNegative | LatencyDistribution
    delete_seconds: NotNegative | LatencyDistribution


class SupplyEntry(ConfigStruct, frozen=True, kw_only=True):
    """So many machines of each named type, and of each type of the named families, in each zone.

    `idle` ones exist, `speculative` ones can be created. Reserved machines are paid for already, so
    using one costs nothing more. All carry `taints` beside those of their type.
    """

    families: tuple[DnsLabel, ...] = ()
    instance_types: tuple[TypeName, ...] = ()
    zones: Annotated[tuple[DnsLabel, ...], msgspec.Meta(min_length=1)]
    capacity_type: Literal["onDemand", "spot", "reserved"]
    idle: Machines = 0
    speculative: Machines = 0
    taints: tuple[Taint, ...] = ()

    def matching_types(self, catalog: Catalog) -> tuple[InstanceType, ...]:
        """The types that it has machines of, in the catalog's order."""
        return tuple(
            instance_type
            for instance_type in catalog.instance_types
            if instance_type.family in self.families or instance_type.name in self.instance_types
        )


class FleetSettings(ConfigStruct, frozen=True, kw_only=True):
    """Supply. Where the catalog's machines are cut for pods, as multiples of the machines that each
    pod size needs: idle machines exist already, speculative ones can be had on demand, spot ones
    cheaper and less surely. Where they are ordinary ones, `supply` says how many there are.

    Spot machines are taken back at their hourly probability, where `spotMarketHoursPerSecond` hours
    pass in a second. A rack holds `machinesPerRack` machines, of one pod size or of all types that
    are in its zone. `scarce` says that less supply than demand is meant. `idleFactorByArchetype`
    gives single archetypes an idle factor of their own: with 0, their pods get only what others
    leave them of machines that both accept.
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


def fleet_errors(settings: ProfileSettings, catalog: Catalog) -> Iterator[FieldError]:
    """Everything impossible in the fleet, given the sort of machines that the catalog has."""
    if not catalog.shares_machines:
        yield from _factor_errors(settings.fleet)
        return
    yield from _supply_errors(settings.fleet, catalog)
    if settings.load.mode == "cr":
        yield FieldError(
            "load.mode",
            f"= {settings.load.mode!r}: pods that share machines ask for more than the load's own "
            "CapacityRequests say; write pods",
        )
    if settings.bigfleet.shards > 1:
        yield FieldError(
            "bigfleet.shards",
            f"= {settings.bigfleet.shards}: fleet.supply is not divided among shards; write 1",
        )
    if settings.federation is not None:
        yield FieldError(
            "federation", "needs machines that are cut for its pods; leave it out, or `catalog`"
        )


def _factor_errors(fleet: FleetSettings) -> Iterator[FieldError]:
    if fleet.idle_factor is None:
        yield FieldError("fleet.idleFactor", "is missing, and has no default")
    if fleet.speculative_factor is None:
        yield FieldError("fleet.speculativeFactor", "is missing, and has no default")
    if fleet.supply:
        yield FieldError(
            "fleet.supply",
            "is for catalogs with instanceTypes; the fleet of this one follows from its pods",
        )


def _supply_errors(fleet: FleetSettings, catalog: Catalog) -> Iterator[FieldError]:
    for key, value in zip(_FACTORS, (fleet.idle_factor, fleet.speculative_factor), strict=True):
        if value is not None:
            yield FieldError(
                f"fleet.{key}",
                f"= {value:g}: the catalog has ordinary instanceTypes, whose machines fleet.supply "
                "counts; leave it out",
            )
    if fleet.spot_factor or fleet.idle_factor_by_archetype:
        yield FieldError(
            "fleet", "spotFactor and idleFactorByArchetype mean nothing beside supply; leave out"
        )
    if not fleet.supply:
        yield FieldError(
            "fleet.supply", "is missing; say how many machines of which types there are"
        )
    for number, entry in enumerate(fleet.supply):
        yield from _entry_errors(f"fleet.supply[{number}]", entry, catalog)


def _entry_errors(where: str, entry: SupplyEntry, catalog: Catalog) -> Iterator[FieldError]:
    families = {instance_type.family for instance_type in catalog.instance_types}
    names = {instance_type.name for instance_type in catalog.instance_types}
    yield from _unknown(f"{where}.families", "family", entry.families, families)
    yield from _unknown(f"{where}.instanceTypes", "type", entry.instance_types, names)
    if not entry.families and not entry.instance_types:
        yield FieldError(where, "names no machines; give families or instanceTypes")
    if not entry.idle and not entry.speculative:
        yield FieldError(where, "has no machines; write idle or speculative")


def _unknown(where: str, what: str, named: Iterable[str], known: set[str]) -> Iterator[FieldError]:
    for name in named:
        if name not in known:
            yield FieldError(where, f"= {name!r}: no such {what}{did_you_mean(name, known)}")
