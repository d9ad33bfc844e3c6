"""Checks whether a run is feasible, before anything is started. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from loaddriver.errors import InfrastructureError, ProfileError
from loaddriver.profile.archetypes import PodSize
from loaddriver.profile.fleet import FleetSettings
from loaddriver.profile.instance_types import dedicated_machine
from loaddriver.profile.loading import Profile
from loaddriver.profile.settings import ProfileSettings
from loaddriver.sizing.demand import PlanDemand, Size, SizeDemand
from loaddriver.sizing.estimate import (
    HostCapacity,
    disk_bytes,
    gibibytes,
    host_shortfalls,
    memory_bytes,
    ramp_seconds,
    run_seconds,
)
from loaddriver.sizing.inventory import (
    SUPPLY_CLASSES,
    InventoryMachine,
    SupplyClass,
    rack_sizes,
    shard_demand,
    supply_counts,
)
from loaddriver.sizing.load import LoadNeed, load_lines
from loaddriver.sizing.offered import offered_counts
from loaddriver.sizing.shared_demand import SharedFleetFeasibility, SharedMachineDemand

Supply = Mapping[Size, Mapping[SupplyClass, int]]
"""The number of machines for each pod size."""


@dataclass(frozen=True)
class Preflight:
    """The lines to print, and the errors that keep the run from starting."""

    lines: tuple[str, ...]
    profile_errors: tuple[str, ...]
    host_errors: tuple[str, ...]

    def raise_errors(self) -> None:
        """Raise ProfileError or InfrastructureError if there are errors."""
        if self.profile_errors:
            raise ProfileError(self.profile_errors)
        if self.host_errors:
            raise InfrastructureError("\n".join(self.host_errors))


def preflight(
    profile: Profile,
    demand: PlanDemand | SharedMachineDemand,
    machines: tuple[InventoryMachine, ...],
    host: HostCapacity,
    need: LoadNeed | None = None,
) -> Preflight:
    """Check `profile`, whose plan has `demand`, against the fleet `machines` and `host`. `need` is
    that of its load.
    """
    cost = (*_cost_lines(profile), *_load_lines(profile, need, host))
    if isinstance(demand, SharedMachineDemand):
        fleet = SharedFleetFeasibility(demand, machines, profile.catalog)
        return _shared_preflight(profile, fleet, host, cost)
    supply = _supply(profile, demand, machines)
    return Preflight(
        lines=(
            *_demand_lines(profile, demand, supply),
            *cost,
        ),
        profile_errors=(
            *_supply_errors(profile, demand, supply),
            *_rack_errors(profile, demand, machines),
            *_budget_errors(profile),
        ),
        host_errors=host_shortfalls(profile, host),
    )


def _shared_preflight(
    profile: Profile, fleet: SharedFleetFeasibility, host: HostCapacity, cost: tuple[str, ...]
) -> Preflight:
    settings = profile.settings.fleet
    short, scarce = list(fleet.shortages()), settings.scarce
    change = _remedy(settings, "change fleet.supply")
    messages = [] if scarce else [f"{line}; {change}" for line in short]
    if scarce and not short:
        lower = _remedy(settings, "lower fleet.supply")
        messages = [f"fleet.scarce: the fleet covers all demand; {lower}"]
    where = f"{profile.name}/profile.yaml: "
    return Preflight(
        lines=(
            _headline(profile, fleet.needed.pods, fleet.needed.same_rack_share),
            *fleet.lines(),
            *cost,
        ),
        profile_errors=(
            *(where + message for message in messages),
            *_budget_errors(profile),
        ),
        host_errors=host_shortfalls(profile, host),
    )


def _pod_size(profile: Profile, size: SizeDemand) -> PodSize:
    return profile.catalog.archetype(size.archetype).sizes[size.size]


def _size_name(profile: Profile, size: SizeDemand) -> str:
    return f"{size.archetype} on {'/'.join(_pod_size(profile, size).instance_types)}"


def _supply(profile: Profile, demand: PlanDemand, machines: Sequence[InventoryMachine]) -> Supply:
    """The machines for each pod size: counted by the profile, or what a provider lists."""
    if profile.settings.fleet.running_provider:
        return offered_counts(demand, machines, profile.catalog)
    return {
        (size.archetype, size.size): supply_counts(profile.settings, size) for size in demand.sizes
    }


def _demand_lines(profile: Profile, demand: PlanDemand, supplies: Supply) -> Iterator[str]:
    """A table in 80 columns: machines needed, allocated by BigFleet, and supplied."""
    yield _headline(profile, demand.pods, demand.same_rack_share)
    yield _row("machines", "pods", "needed", "alloc.", *(name[:4] for name in SUPPLY_CLASSES))
    offered = dict.fromkeys(SUPPLY_CLASSES, 0)
    for size in demand.sizes:
        supply = supplies[size.archetype, size.size]
        offered = {name: offered[name] + supply[name] for name in SUPPLY_CLASSES}
        needed = size.pods, size.machines_packed, size.machines_claimed
        yield _row(_size_name(profile, size), *needed, *supply.values())
    sums = demand.pods, demand.machines_packed, demand.machines_claimed
    yield _row("all", *sums, *offered.values())


def _headline(profile: Profile, pods: int, same_rack_share: float) -> str:
    clusters = profile.settings.clusters
    peak = " at the peak" if pods > profile.settings.pods else ""
    return (
        f"{profile.name}: {pods:,} pods{peak} in {clusters} cluster{'s' * (clusters > 1)}, "
        f"{same_rack_share:.1%} of them in same-rack gangs"
    )


def _row(name: str, *cells: object) -> str:
    return (
        f"  {name:<41}"
        + "".join(f"{cell!s:>7}" for cell in cells[:3])
        + "".join(f"{cell!s:>5}" for cell in cells[3:])
    )


def _cost_lines(profile: Profile) -> Iterator[str]:
    settings = profile.settings
    yield (
        f"  estimate: about {gibibytes(memory_bytes(settings))} memory, "
        f"{gibibytes(disk_bytes(settings))} disk, {run_seconds(settings) / 60:.1f} minutes on "
        "2 cores"
    )


def _load_lines(profile: Profile, need: LoadNeed | None, host: HostCapacity) -> Iterator[str]:
    if need is not None:
        yield from load_lines(need, profile.settings.load.workers, host.cores)


def _supply_errors(profile: Profile, demand: PlanDemand, supplies: Supply) -> Iterator[str]:
    """Compare supply to peak demand, which a scarce fleet must not cover."""
    settings, fleet = profile.settings, profile.settings.fleet
    lacking = [
        (size, needed, offered)
        for size in demand.sizes
        if (offered := sum(supplies[size.archetype, size.size].values()))
        < (needed := _required_machines(settings, size))
    ]
    if fleet.scarce and not lacking:
        yield (
            f"{profile.name}/profile.yaml: fleet.scarce: the fleet covers all demand; "
            f"{_remedy(fleet, 'lower fleet.idleFactor or fleet.speculativeFactor')}"
        )
    for size, needed, offered in () if fleet.scarce else lacking:
        least = 1 - (fleet.idle_factor or 0) - fleet.spot_factor
        remedy = _remedy(fleet, f"raise fleet.speculativeFactor to at least {least:g}")
        yield (
            f"{profile.name}/profile.yaml: fleet: {_size_name(profile, size)} needs "
            f"{needed} machines at its peak{_per_shard(settings)}, the fleet has {offered}"
            f"{_kind_of(profile, size)}; {remedy}"
        )


def _remedy(fleet: FleetSettings, of_profile: str) -> str:
    """What changes the fleet: its counts in the profile, or the provider that lists it."""
    if fleet.running_provider is None:
        return of_profile
    listing = f"what {fleet.running_provider.address} lists"
    return f"change {listing} (fleet.runningProvider, --provider)"


def _kind_of(profile: Profile, size: SizeDemand) -> str:
    """What a provider's machines must be like to count for a size; the profile's own are."""
    if profile.settings.fleet.running_provider is None:
        return ""
    archetype, catalog = profile.catalog.archetype(size.archetype), profile.catalog
    shape = dedicated_machine(archetype, archetype.sizes[size.size], catalog.pricing).quantities()
    amounts = ", ".join(f"{name} {amount}" for name, amount in shape.items())
    zones = f" in {', '.join(archetype.zones)}" if archetype.zones else ""
    return f" with {amounts}{zones}"


def _required_machines(settings: ProfileSettings, size: SizeDemand) -> int:
    """The machines needed so that every shard's part suffices for any clusters it serves."""
    return settings.bigfleet.shards * shard_demand(settings, size).machines_claimed


def _per_shard(settings: ProfileSettings) -> str:
    shards = settings.bigfleet.shards
    return f" in the parts of {shards} shards" if shards > 1 else ""


def _rack_errors(
    profile: Profile, demand: PlanDemand, machines: tuple[InventoryMachine, ...]
) -> Iterator[str]:
    """Check that each gang larger than a machine finds its machines in one rack."""
    settings = profile.settings
    for size in () if settings.fleet.scarce else demand.sizes:
        gangs = shard_demand(settings, size).gang_machines
        if not gangs or size.same_rack_pods == 0:
            continue
        racks = rack_sizes(machines, _pod_size(profile, size).instance_types)
        # Sorted, with as many racks of each size as there are shards.
        unplaced = _unplaced_gangs(gangs, racks[:: settings.bigfleet.most_shards])
        more_racks = "raise fleet.speculativeFactor or fleet.machinesPerRack"
        if unplaced:
            yield (
                f"{profile.name}/profile.yaml: fleet: {len(unplaced)} of "
                f"{len(gangs)} {size.archetype} gangs (the largest of "
                f"{max(unplaced)} machines) fit no rack; "
                f"{_remedy(settings.fleet, more_racks)}"
            )


def _unplaced_gangs(gangs: tuple[int, ...], racks: list[int]) -> list[int]:
    """The gangs left over by best fit, largest first."""
    free, unplaced = list(racks), []
    for gang in sorted(gangs, reverse=True):
        fitting = [place for place, left in enumerate(free) if left >= gang]
        if not fitting:
            unplaced.append(gang)
            continue
        free[min(fitting, key=lambda place: free[place])] -= gang
    return unplaced


def _budget_errors(profile: Profile) -> Iterator[str]:
    settings = profile.settings
    expected = ramp_seconds(settings)
    if expected > settings.ramp.budget_seconds and settings.load.mode == "pods":
        yield (
            f"{profile.name}/profile.yaml: ramp.budgetSeconds = {settings.ramp.budget_seconds:g}: "
            f"binding {settings.pods} pods takes about {expected:.0f} s on 2 cores; raise it"
        )
