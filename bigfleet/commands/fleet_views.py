"""The coordinator's lists as text. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.commands.tables import ago, count, table

# Several missed reports, which are sent every two seconds.
_SILENT_SECONDS = 10.0
_UNNAMED = "(none)"


def state_of(shard: wire.ShardRegistryEntry) -> str:
    """The shard's state: unknown, silent, leaving or live."""
    if not shard.last_heartbeat_unix_ns:
        return "unknown"
    if shard.seconds_since_report > _SILENT_SECONDS:
        return "silent"
    return "leaving" if shard.leaving else "live"


@dataclass(frozen=True)
class Lists:
    """The coordinator's lists."""

    shards: Sequence[wire.ShardRegistryEntry]
    reports: Sequence[wire.ShardReportSnapshot]
    domains: Sequence[wire.DomainAssignment]
    clusters: Sequence[wire.ClusterAssignment]
    quotas: Sequence[wire.QuotaAllocation] = ()


def shard_lines(lists: Lists) -> list[str]:
    """One line for each shard."""
    reports_by_shard = {report.shard_id: report for report in lists.reports}
    owned = Counter(domain.shard_id for domain in lists.domains)
    served = Counter(cluster.shard_id for cluster in lists.clusters)
    rows = []
    for entry in lists.shards:
        report = reports_by_shard.get(entry.shard_id, wire.ShardReportSnapshot())
        reported = entry.last_heartbeat_unix_ns
        rows.append(
            (
                entry.shard_id,
                state_of(entry),
                f"{ago(entry.seconds_since_report)} ago" if reported else "never",
                report.summary.total_machines,
                report.summary.free_machines,
                owned[entry.shard_id],
                served[entry.shard_id],
                entry.address,
            )
        )
    headers = (
        "SHARD",
        "STATE",
        "LAST REPORT",
        "MACHINES",
        "FREE",
        "DOMAINS",
        "CLUSTERS",
        "ADDRESS",
    )
    return table(headers, rows)


def domains(entries: Sequence[wire.DomainAssignment]) -> list[str]:
    """One line for each domain."""
    rows = [
        (
            entry.topology_value or _UNNAMED,
            entry.shard_id,
            entry.state + (f", then to {entry.transfer_target}" if entry.transfer_target else ""),
            entry.topology_key or _UNNAMED,
            entry.reason,
        )
        for entry in entries
    ]
    return table(("DOMAIN", "SHARD", "STATE", "KEY", "MOVED BECAUSE"), rows)


def out_of_domain_machines(reports: Sequence[wire.ShardReportSnapshot]) -> list[str]:
    """One line for each machine in use whose shard does not own its domain."""
    rows = [
        (each.machine_id, each.cluster_id, report.shard_id, each.topology_value or _UNNAMED)
        for report in reports
        for each in report.out_of_domain_machines
    ]
    omitted = sum(report.out_of_domain_omitted for report in reports)
    lines = table(("MACHINE", "CLUSTER", "SHARD", "DOMAIN"), rows)
    return [*lines, *([f"and {omitted:,} more, omitted from reports"] * bool(omitted))]


def clusters(
    entries: Sequence[wire.ClusterAssignment], reports: Sequence[wire.ShardReportSnapshot]
) -> list[str]:
    """One line for each cluster."""
    left = {
        each.cluster_id: each.machines_left
        for report_lines in reports
        for each in report_lines.removals
    }
    rows = [
        (
            entry.cluster_id,
            entry.shard_id,
            f"being removed, {count(left[entry.cluster_id], 'machine')} left"
            if entry.cluster_id in left
            else "served",
        )
        for entry in entries
    ]
    return table(("CLUSTER", "SHARD", "STATE"), rows)


def quotas(entries: Sequence[wire.QuotaAllocation]) -> list[str]:
    """One line for each shard's share; shards without one may purchase nothing."""
    rows = [
        (
            entry.provider,
            entry.region or _UNNAMED,
            shard,
            f"{machines:,}"
            + (f", {entry.for_now[shard]:,} for now" if shard in entry.for_now else ""),
            entry.reasons.get(shard, ""),
        )
        for entry in entries
        for shard, machines in sorted(entry.per_shard.items()) or [("(no shard)", 0)]
    ]
    return table(("PROVIDER", "REGION", "SHARD", "MACHINES", "CHANGED BECAUSE"), rows)


def quota_warning(provider: str, region: str, known: Sequence[wire.ProviderEntry]) -> str:
    """A second line, if no shard has reported machines that a quota would limit."""
    names = sorted({(each.name, each.region) for each in known})
    if not names or (provider, region) in names:
        return ""
    listed = ", ".join(f"{name} {of_region or _UNNAMED}" for name, of_region in names)
    return f"\nwarning: it limits nothing as long as shards report only: {listed}"


def providers(entries: Sequence[wire.ProviderEntry]) -> list[str]:
    """One line for each provider."""
    rows = [(entry.name, entry.region or _UNNAMED, entry.address) for entry in entries]
    return table(("PROVIDER", "REGION", "ADDRESS"), rows)


def shortfalls(reports: Sequence[wire.ShardReportSnapshot]) -> list[str]:
    """By priority, then age; each with its reason below it."""
    found = [(report.shard_id, each) for report in reports for each in report.shortfalls]
    found.sort(key=lambda pair: (-pair[1].priority, -pair[1].age_cycles, pair[0]))
    rows = [
        (
            each.cluster_id,
            each.profile_fingerprint[:12],
            shard,
            each.priority,
            each.count,
            each.age_cycles,
            _amounts(each),
        )
        for shard, each in found
    ]
    headers = ("CLUSTER", "PROFILE", "SHARD", "PRIORITY", "PODS", "CYCLES", "LACKS")
    first, *lines = table(headers, rows)
    report_lines = [
        line
        for text, (_, each) in zip(lines, found, strict=True)
        for line in (text, *([f"    {each.reason}"] if each.reason else []))
    ]
    omitted = sum(report.shortfalls_omitted for report in reports)
    return [
        first,
        *report_lines,
        *([f"and {omitted:,} more, omitted from reports"] * bool(omitted)),
    ]


def _amounts(each: wire.Shortfall) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in sorted(each.deficit.resources.items()))


def status(leader: str, term: int, lists: Lists) -> list[str]:
    """The fleet on one screen; warnings come last."""
    states = Counter(state_of(entry) for entry in lists.shards)
    machines = sum(report.summary.total_machines for report in lists.reports)
    free = sum(report.summary.free_machines for report in lists.reports)
    by_state = Counter(domain.state for domain in lists.domains)
    out_of_domain_machines = sum(
        len(report.out_of_domain_machines) + report.out_of_domain_omitted
        for report in lists.reports
    )
    shortfalls_found = [each for report in lists.reports for each in report.shortfalls]
    omitted = sum(report.shortfalls_omitted for report in lists.reports)
    lines = [
        f"coordinator  {leader} leads in term {term}",
        f"shards       {count(len(lists.shards), 'shard')}{_parts(states)}",
        f"machines     {machines:,}, {free:,} of them free"
        + (
            f"; {out_of_domain_machines:,} in domains of other shards"
            if out_of_domain_machines
            else ""
        ),
        f"domains      {count(len(lists.domains), 'domain')}{_parts(by_state)}",
        f"clusters     {count(len(lists.clusters), 'cluster')}",
        (
            "shortfalls   "
            f"{count(len(shortfalls_found) + omitted, 'profile')}{_oldest(shortfalls_found)}"
        ),
    ]
    return [
        *lines,
        *_warnings(lists.shards),
        *_without_quota(lists.shards, lists.quotas),
        *_splits(lists.reports),
    ]


def _parts(counts: Counter[str]) -> str:
    named = ", ".join(f"{number:,} {name}" for name, number in sorted(counts.items()))
    return f": {named}" if named else ""


def _oldest(shortfalls_found: Sequence[wire.Shortfall]) -> str:
    oldest = max((each.age_cycles for each in shortfalls_found), default=0)
    return f", the oldest for {count(oldest, 'cycle')}" if shortfalls_found else ""


def _without_quota(
    entries: Sequence[wire.ShardRegistryEntry], quotas: Sequence[wire.QuotaAllocation]
) -> Iterator[str]:
    """Warnings about shards without a part of a quota, such as those that have just joined."""
    for quota in quotas:
        named = [each.shard_id for each in entries if state_of(each) == "live"]
        if left_out := [shard for shard in named if not quota.per_shard.get(shard, 0)]:
            where = " ".join(filter(None, (quota.provider, quota.region)))
            shards = ", ".join(left_out)
            yield f"warning      {shards}: no quota at {where}, so nothing is purchased"
            yield "             there while others use all; `fleet set-quota` divides it anew"


def _splits(reports: Sequence[wire.ShardReportSnapshot]) -> Iterator[str]:
    """Warnings about needs that may wait forever because no shard owns the whole domain."""
    shards: defaultdict[str, set[str]] = defaultdict(set)
    values: defaultdict[str, set[str]] = defaultdict(set)
    for report in reports:
        for split in report.splits:
            shards[split.topology_key].add(report.shard_id)
            values[split.topology_key].add(split.topology_value)
    for key, asking in sorted(shards.items()):
        named = sorted(values[key])
        more = f" and {len(named) - 3} more" if len(named) > 3 else ""
        yield f"warning      {', '.join(named[:3])}{more} ({key}): split across shards;"
        yield f"             needs of {', '.join(sorted(asking))} that require it whole may wait"
        yield "             forever; assign its domains to one shard"


def _warnings(entries: Sequence[wire.ShardRegistryEntry]) -> Iterator[str]:
    for entry in entries:
        shard = entry.shard_id
        match state_of(entry):
            case "silent":
                yield (
                    f"warning      shard {shard} has not reported for "
                    f"{ago(entry.seconds_since_report)}"
                )
            case "unknown":
                yield f"warning      shard {shard} has not reported to this leader"
            case _:
                continue
        if entry.leaving:
            yield f"             it was leaving; if it is dead, `fleet remove-shard {shard}` again"
