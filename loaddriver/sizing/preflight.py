"""Whether a run can work at all, worked out before anything is started.

Pure: the machine's figures are passed in. The rates come from measured runs of
the real control plane on two cores; they are estimates and said to be so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from loaddriver.errors import InfrastructureError, ProfileError
from loaddriver.profile.archetypes import PodSize
from loaddriver.profile.loading import Profile
from loaddriver.profile.settings import ProfileSettings
from loaddriver.sizing.demand import PlanDemand, SizeDemand
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
    rack_sizes,
    shard_demand,
    supply_counts,
)
from loaddriver.sizing.shared_demand import SharedFleetFeasibility, SharedMachineDemand


@dataclass(frozen=True)
class Preflight:
    """The sums, as lines to print, and why the run must not start, if so."""

    lines: tuple[str, ...]
    profile_errors: tuple[str, ...]
    host_errors: tuple[str, ...]

    def raise_errors(self) -> None:
        """Raises ProfileError or InfrastructureError when there is a reason not to start."""
        if self.profile_errors:
            raise ProfileError(self.profile_errors)
        if self.host_errors:
            raise InfrastructureError("\n".join(self.host_errors))


def preflight(
    profile: Profile,
    demand: PlanDemand | SharedMachineDemand,
    machines: tuple[InventoryMachine, ...],
    host: HostCapacity,
) -> Preflight:
    """The feasibility of `profile`, whose plan needs `demand` of the fleet `machines`."""
    if isinstance(demand, SharedMachineDemand):
        return _shared_preflight(
            profile, SharedFleetFeasibility(demand, machines, profile.catalog), host
        )
    return Preflight(
        lines=(
            *_demand_lines(profile, demand),
            *_cost_lines(profile, host),
        ),
        profile_errors=(
            *_supply_errors(profile, demand),
            *_rack_errors(profile, demand, machines),
            *_budget_errors(profile),
        ),
        host_errors=host_shortfalls(profile, host),
    )


def _shared_preflight(
    profile: Profile, fleet: SharedFleetFeasibility, host: HostCapacity
) -> Preflight:
    short, scarce = list(fleet.shortages()), profile.settings.fleet.scarce
    messages = [] if scarce else [f"{line}; change fleet.supply" for line in short]
    if scarce and not short:
        messages = ["fleet.scarce: the fleet covers all demand; lower fleet.supply"]
    where = f"{profile.name}/profile.yaml: "
    return Preflight(
        lines=(
            _headline(profile, fleet.needed.pods, fleet.needed.same_rack_share),
            *fleet.lines(),
            *_cost_lines(profile, host),
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


def _demand_lines(profile: Profile, demand: PlanDemand) -> Iterator[str]:
    """A table in 80 columns: what is needed, what BigFleet will hand out, what there is."""
    yield _headline(profile, demand.pods, demand.same_rack_share)
    yield _row("machines", "pods", "needed", "handed", *(name[:4] for name in SUPPLY_CLASSES))
    offered = dict.fromkeys(SUPPLY_CLASSES, 0)
    for size in demand.sizes:
        supply = supply_counts(profile.settings, size)
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


def _cost_lines(profile: Profile, host: HostCapacity) -> Iterator[str]:
    settings = profile.settings
    yield (
        f"  expected here ({host.cores} cores): about {gibibytes(memory_bytes(settings))} memory, "
        f"{gibibytes(disk_bytes(settings))} disk, {run_seconds(settings) / 60:.1f} minutes"
    )


def _supply_errors(profile: Profile, demand: PlanDemand) -> Iterator[str]:
    """Supply is held against the peak of demand; a fleet that is meant to be scarce, too."""
    settings, fleet = profile.settings, profile.settings.fleet
    lacking = [
        (size, needed, offered)
        for size in demand.sizes
        if (offered := sum(supply_counts(settings, size).values()))
        < (needed := _required_machines(settings, size))
    ]
    if fleet.scarce and not lacking:
        yield (
            f"{profile.name}/profile.yaml: fleet.scarce: the fleet covers all demand, so nothing "
            "would be scarce; lower fleet.idleFactor or fleet.speculativeFactor"
        )
    for size, needed, offered in () if fleet.scarce else lacking:
        least = 1 - (fleet.idle_factor or 0) - fleet.spot_factor
        yield (
            f"{profile.name}/profile.yaml: fleet: {_size_name(profile, size)} needs "
            f"{needed} machines at its peak{_per_shard(settings)}, the fleet has {offered}; raise "
            f"fleet.speculativeFactor to at least {least:g}"
        )


def _required_machines(settings: ProfileSettings, size: SizeDemand) -> int:
    """What must be there so that every shard's part does for whichever clusters it serves."""
    return settings.bigfleet.shards * shard_demand(settings, size).machines_claimed


def _per_shard(settings: ProfileSettings) -> str:
    shards = settings.bigfleet.shards
    return f" in the parts of {shards} shards" if shards > 1 else ""


def _rack_errors(
    profile: Profile, demand: PlanDemand, machines: tuple[InventoryMachine, ...]
) -> Iterator[str]:
    """Gangs larger than a machine must each find all their machines in one rack."""
    settings = profile.settings
    for size in () if settings.fleet.scarce else demand.sizes:
        gangs = shard_demand(settings, size).gang_machines
        if not gangs or size.same_rack_pods == 0:
            continue
        room = rack_sizes(machines, _pod_size(profile, size).instance_types)
        # Sorted, with as many racks of each size as there are shards.
        unplaced = _unplaced_gangs(gangs, room[:: settings.bigfleet.shards])
        if unplaced:
            yield (
                f"{profile.name}/profile.yaml: fleet: {len(unplaced)} of "
                f"{len(gangs)} {size.archetype} gangs (the largest of "
                f"{max(unplaced)} machines) find no rack with room for all of them; raise "
                f"fleet.speculativeFactor or fleet.machinesPerRack"
            )


def _unplaced_gangs(gangs: tuple[int, ...], room: list[int]) -> list[int]:
    """The gangs left over when the largest go first, each to the tightest rack that holds it."""
    free, unplaced = list(room), []
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
            f"binding {settings.pods} pods takes about {expected:.0f} s on two cores; raise it"
        )
