"""Checks of the fleet against the catalog."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from loaddriver.profile.catalog import Catalog
from loaddriver.profile.decoding import FieldError
from loaddriver.profile.fleet import FleetSettings, SupplyEntry
from loaddriver.profile.hints import did_you_mean
from loaddriver.profile.settings import ProfileSettings

_FACTORS = ("idleFactor", "speculativeFactor")
_ADDRESS = re.compile(r"\S+:[0-9]{1,5}")


def fleet_errors(settings: ProfileSettings, catalog: Catalog) -> Iterator[FieldError]:
    """Every contradiction between the fleet and the catalog's machines."""
    yield from _provider_errors(settings.fleet)
    yield from _running_provider_errors(settings)
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
    if settings.system != "bigfleet":
        yield FieldError(key, f"is BigFleet's; remove it, or `system: {settings.system}`")
    if settings.anchors == "both":
        yield FieldError(
            "anchors",
            "= both: the second run would begin with the machines as the first one left them at "
            f"{key}; write on or off",
        )


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
