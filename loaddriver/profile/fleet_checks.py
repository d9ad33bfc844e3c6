"""Checks of the fleet against the catalog."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from loaddriver.profile.catalog import Catalog
from loaddriver.profile.decoding import FieldError
from loaddriver.profile.fleet import FleetSettings, PriceMoves, SupplyEntry
from loaddriver.profile.hints import did_you_mean
from loaddriver.profile.settings import ProfileSettings

_FACTORS = ("idleFactor", "speculativeFactor")
_ADDRESS = re.compile(r"\S+:[0-9]{1,5}")


def fleet_errors(settings: ProfileSettings, catalog: Catalog) -> Iterator[FieldError]:
    """Every contradiction between the fleet and the catalog's machines."""
    yield from _provider_errors(settings.fleet)
    yield from _running_provider_errors(settings)
    yield from _market_errors(settings)
    if not catalog.shares_machines:
        yield from _factor_errors(settings.fleet)
        return
    yield from _supply_errors(settings.fleet, catalog)
    if settings.load.mode == "cr":
        yield FieldError(
            "load.mode",
            f"= {settings.load.mode!r}: the load's CapacityRequests cannot express all that pods "
            "on shared machines request; write pods",
        )
    if settings.federation is not None:
        yield FieldError("federation", "needs dedicated machines; remove it, or change `catalog`")


def _provider_errors(fleet: FleetSettings) -> Iterator[FieldError]:
    names = [each.name for each in fleet.providers]
    for number, name in enumerate(names):
        if name in names[:number]:
            yield FieldError(f"fleet.providers[{number}].name", f"= {name!r} is a duplicate")


def _running_provider_errors(settings: ProfileSettings) -> Iterator[FieldError]:
    running, key = settings.fleet.running_provider, "fleet.runningProvider"
    if running is None:
        return
    if not _ADDRESS.fullmatch(running.address):
        yield FieldError(f"{key}.address", f"= {running.address!r}: write HOST:PORT (--provider)")
    if not running.identities:
        yield FieldError(
            f"{key}.identities",
            "is missing: the folder in which `bigfleet certs` made the provider's certificate "
            "(--provider-identities)",
        )
    if settings.fleet.providers:
        yield FieldError(key, "has all machines of the fleet; remove it, or fleet.providers")
    if changes := settings.fleet.market_key:
        yield FieldError(changes, f"is played by the harness's own provider; remove it, or {key}")
    if settings.system != "bigfleet":
        yield FieldError(key, f"is BigFleet's; remove it, or `system: {settings.system}`")
    if settings.anchors == "both":
        yield FieldError(
            "anchors",
            "= both: the second run would begin with the machines as the first one left them at "
            f"{key}; write on or off",
        )


def _market_errors(settings: ProfileSettings) -> Iterator[FieldError]:
    prices, interruptions = settings.fleet.prices, settings.fleet.interruptions
    if settings.fleet.market_key and settings.system != "bigfleet":
        yield FieldError(
            settings.fleet.market_key,
            f"is played by BigFleet's provider; remove it, or `system: {settings.system}`",
        )
    if prices is not None:
        yield from _price_errors(prices, settings.soak.seconds)
    if interruptions is not None:
        last = interruptions.times_seconds[-1] + interruptions.length_seconds
        if last > settings.soak.seconds:
            yield FieldError(
                "fleet.interruptions",
                f"end {last:g} s into a soak of {settings.soak.seconds:g} s; they must end within",
            )
        if settings.fleet.spot_market_hours_per_second:
            yield FieldError(
                "fleet.spotMarketHoursPerSecond",
                "interrupts single machines, which fleet.interruptions would be blamed for; remove "
                "one of the two",
            )


def _price_errors(prices: PriceMoves, soak_seconds: float) -> Iterator[FieldError]:
    if prices.lowest_factor >= prices.highest_factor:
        yield FieldError(
            "fleet.prices.lowestFactor",
            f"= {prices.lowest_factor:g}: prices would not move; write less than highestFactor = "
            f"{prices.highest_factor:g}",
        )
    last = prices.times_seconds[-1]
    if last >= soak_seconds:
        yield FieldError(
            "fleet.prices",
            f"move for the last time {last:g} s into a soak of {soak_seconds:g} s; they must move "
            "before its end",
        )
    for number, name in enumerate(prices.capacity_types):
        if name in prices.capacity_types[:number]:
            yield FieldError(f"fleet.prices.capacityTypes[{number}]", f"= {name!r} is a duplicate")


def _factor_errors(fleet: FleetSettings) -> Iterator[FieldError]:
    if fleet.idle_factor is None:
        yield FieldError("fleet.idleFactor", "is missing")
    if fleet.speculative_factor is None:
        yield FieldError("fleet.speculativeFactor", "is missing")
    if fleet.supply:
        yield FieldError(
            "fleet.supply",
            "is for catalogs with instanceTypes; dedicated machines follow from the pods",
        )


def _supply_errors(fleet: FleetSettings, catalog: Catalog) -> Iterator[FieldError]:
    for key, value in zip(_FACTORS, (fleet.idle_factor, fleet.speculative_factor), strict=True):
        if value is not None:
            yield FieldError(
                f"fleet.{key}",
                f"= {value:g}: shared machines are counted by fleet.supply; remove it",
            )
    if fleet.spot_factor or fleet.idle_factor_by_archetype:
        yield FieldError(
            "fleet", "spotFactor and idleFactorByArchetype have no effect with supply; remove them"
        )
    if not fleet.supply:
        yield FieldError("fleet.supply", "is missing; list the machines of each type")
    for number, entry in enumerate(fleet.supply):
        yield from _entry_errors(f"fleet.supply[{number}]", entry, catalog)


def _entry_errors(where: str, entry: SupplyEntry, catalog: Catalog) -> Iterator[FieldError]:
    families = {instance_type.family for instance_type in catalog.instance_types}
    names = {instance_type.name for instance_type in catalog.instance_types}
    yield from _unknown(f"{where}.families", "family", entry.families, families)
    yield from _unknown(f"{where}.instanceTypes", "type", entry.instance_types, names)
    if not entry.families and not entry.instance_types:
        yield FieldError(where, "has no types; add families or instanceTypes")
    if not entry.idle and not entry.speculative:
        yield FieldError(where, "has no machines; add idle or speculative")


def _unknown(where: str, what: str, named: Iterable[str], known: set[str]) -> Iterator[FieldError]:
    for name in named:
        if name not in known:
            yield FieldError(where, f"= {name!r}: no such {what}{did_you_mean(name, known)}")
