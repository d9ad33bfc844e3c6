"""Parts of a shard's report to the coordinator."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

import numpy as np

from bigfleet.api import need_codec
from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.api.v1alpha1 import provider_pb2
from bigfleet.api.v1alpha1.capacity_pb2 import PenaltyBucket
from bigfleet.engine.columns import LabelColumn, columns_of
from bigfleet.engine.explain.shortfall_report import ShortfallGroup, report
from bigfleet.engine.need_columns import need_columns_of
from bigfleet.engine.snapshot import Demand, Flavour, Fleet, Longs
from bigfleet.model import resources
from bigfleet.model.domain import Domain, is_name, region_of
from bigfleet.model.labels import INSTANCE_TYPE_LABEL, RACK_LABEL, ZONE_LABEL
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Profile
from bigfleet.model.report_limits import MAX_MOVABLE_DOMAINS, MAX_OUT_OF_DOMAIN, MAX_SPLITS
from bigfleet.services.shard.coordination.drainable_domains import OthersBusyMachines
from bigfleet.services.shard.coordination.helpful_domains import OthersFreeMachines
from bigfleet.services.shard.coordination.withheld_machines import WithheldMachines
from bigfleet.services.shard.decide.compute import CycleResult
from bigfleet.services.shard.fleet.inventory import Inventory
from bigfleet.services.shard.records.views import FreeMachines

# So that a summary stays near 240 bytes for any number of machine classes.
MAX_TYPES, MAX_ZONES = 6, 3
OTHERS = "others"
_MAX_MOVABLE_OF_TYPE = 5
MAX_COUNT = 2**31 - 1


def summary(fleet: Fleet) -> wire.ShardSummary:
    """Counts of this shard's machines, by the most common types and zones."""
    counts = np.bincount(fleet.flavour, minlength=len(fleet.flavours))
    columns = columns_of(fleet.flavours)
    return wire.ShardSummary(
        total_machines=len(fleet),
        free_machines=int((fleet.state == MachineState.IDLE).sum()),
        speculative_machines=int((fleet.state == MachineState.SPECULATIVE).sum()),
        per_instance_type_counts=_commonest(columns.label(INSTANCE_TYPE_LABEL), counts, MAX_TYPES),
        per_zone_counts=_commonest(columns.label(ZONE_LABEL), counts, MAX_ZONES),
    )


def profiles_of(demand: Demand) -> list[Profile]:
    """The distinct profiles of all needs."""
    needs = need_columns_of(demand.needs)
    return [needs.profiles[number] for number in np.unique(needs.profile).tolist()]


def regions_of(flavours: Sequence[Flavour]) -> Mapping[str, Sequence[str]]:
    """By provider, the regions of its machines, sorted."""

    def find() -> Mapping[str, Sequence[str]]:
        found: defaultdict[str, set[str]] = defaultdict(set)
        for flavour in flavours:
            found[flavour.provider].add(region_of(flavour.labels))
        return {provider: sorted(regions) for provider, regions in found.items()}

    return columns_of(flavours).remember_last(("regions", None), find)


def shortfalls(
    result: CycleResult,
    free_of_others: Sequence[FreeMachines] = (),
    withheld: WithheldMachines | None = None,
    busy_of_others: OthersBusyMachines | None = None,
) -> tuple[list[wire.Shortfall], int]:
    """The most urgent shortfalls of the last decision, and how many old ones are omitted."""
    found = report(result.fleet, result.demand, result.decision)
    others = OthersFreeMachines(free_of_others, result.fleet.flavours)
    rows = [
        _shortfall(
            row,
            [
                *others.helpful_to(row),
                *(busy_of_others.drainable_for(row) if busy_of_others else ()),
            ],
            withheld.lacking_to(row) if withheld else (),
        )
        for row in found.rows
    ]
    return rows, found.unreported


def out_of_domain_machines(inventory: Inventory) -> tuple[list[wire.OutOfDomainMachine], int]:
    """This shard's bound machines in other shards' domains, and how many are omitted."""
    found, omitted = inventory.out_of_domain_machines(MAX_OUT_OF_DOMAIN)
    machines = [
        wire.OutOfDomainMachine(
            machine_id=machine_id,
            cluster_id=cluster,
            topology_key=domain.key,
            topology_value=domain.value,
        )
        for machine_id, cluster, domain in found
    ]
    return machines, omitted


def commonest_type(counts: Mapping[str, int]) -> str:
    """The most common instance type; ties go by name, so that all shards report the same."""
    if len(counts) == 1:  # nearly all racks
        return next(iter(counts))
    return min(counts, key=lambda name: (-counts[name], name))


def movable_domains(
    machines: Mapping[Domain, Mapping[str, int]], in_use: Mapping[Domain, int]
) -> list[wire.MovableDomain]:
    """Of each instance type the domains with the fewest machines in use: the first of each type
    before the second of any, so that no type is left out for its name. `machines` counts those of
    the candidates by type.
    """
    by_type: defaultdict[str, list[Domain]] = defaultdict(list)
    for domain, counts in machines.items():
        by_type[commonest_type(counts)].append(domain)
    for name, domains in by_type.items():
        by_type[name] = heapq.nsmallest(
            _MAX_MOVABLE_OF_TYPE, domains, key=lambda domain: (in_use.get(domain, 0), domain)
        )
    ranks = zip_longest(*(domains for _, domains in sorted(by_type.items())))
    found = [domain for rank in ranks for domain in rank if domain is not None]
    return [
        wire.MovableDomain(
            topology_key=domain.key,
            topology_value=domain.value,
            machines_in_use=in_use.get(domain, 0),
        )
        for domain in found[:MAX_MOVABLE_DOMAINS]
    ]


def splits(
    result: CycleResult, inventory: Inventory, domain_keys: Sequence[str]
) -> list[wire.SplitTopology]:
    """Topology values that needs ask for as one domain, and whose machines are split between
    shards. Keys by which domains are owned as a whole, and racks, cannot be split.
    """
    whole = {RACK_LABEL, domain_keys[0]}
    asked = {each.same_key for each in profiles_of(result.demand)}
    found = [
        wire.SplitTopology(topology_key=key, topology_value=value)
        for key in sorted(key for key in asked if key and key not in whole)
        for value in sorted(inventory.labels(key, owned=True) & inventory.labels(key, owned=False))
        if is_name(value)
    ]
    return found[:MAX_SPLITS]


def _commonest(label: LabelColumn, counts: Longs, most: int) -> dict[str, int]:
    """By value of a label the number of machines, of the most common values; `counts` [F] are those
    of each flavour. Ties go by name.
    """
    names = (*label.values, "")  # the last is for machines without the label
    totals = np.bincount(label.codes % len(names), counts, len(names)).astype(np.int64).tolist()
    ordered = sorted(zip(names, totals, strict=True), key=lambda each: (-each[1], each[0]))
    commonest = {value: count for value, count in ordered[:most] if count}
    if rest := sum(totals) - sum(commonest.values()):
        commonest[OTHERS] = commonest.get(OTHERS, 0) + rest
    return commonest


def _shortfall(
    row: ShortfallGroup,
    helpful: Iterable[wire.HelpfulDomain],
    quotas: Iterable[wire.QuotaShortage],
) -> wire.Shortfall:
    return wire.Shortfall(
        requirements=need_codec.requirements_to_wire(row.profile.requirements),
        deficit=provider_pb2.Resources(resources=resources.texts(dict(row.deficit))),
        priority=row.priority,
        age_cycles=row.age_cycles,
        interruption_penalty_bucket=PenaltyBucket.ValueType(row.profile.interruption_bucket),
        cluster_id=row.cluster,
        profile_fingerprint=row.profile.fingerprint,
        needs=row.needs,
        reason=row.message,
        same_domain=row.profile.same_key is not None,
        count=min(row.count, MAX_COUNT),
        helpful_domains=helpful,
        quotas=quotas,
    )
