"""A shard's responses as sentences. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from bigfleet.api import need_codec
from bigfleet.api.v1alpha1 import capacity_pb2, provider_pb2
from bigfleet.api.v1alpha1 import shardread_pb2 as wire
from bigfleet.commands.pod import PodFacts
from bigfleet.commands.tables import count
from bigfleet.model import resources
from bigfleet.model.group import Additional, FoldedGangs, PodGroup, group_of_text
from bigfleet.model.labels import INSTANCE_TYPE_LABEL, ZONE_LABEL

_NAMED_NEEDS = 10


def ceilings(views: Sequence[wire.CeilingView], cluster: str) -> list[str]:
    """The clusters from which a ceiling withholds something, and the number of others; for one
    `cluster`, all about it.
    """
    shown = [view for view in views if cluster or view.waiting_needs or view.capped_needs]
    lines = [line for view in shown for line in _ceiling(view)]
    if others := len(views) - len(shown):
        what = (
            "cluster is below its ceiling" if others == 1 else "clusters are below their ceilings"
        )
        lines.append(f"{others} {'other ' if shown else ''}{what}.")
    return lines or ["No cluster that this shard serves has a ceiling."]


def _ceiling(view: wire.CeilingView) -> Iterator[str]:
    yield f"Cluster {view.cluster_id}:"
    if view.HasField("machine_ceiling"):
        yield f"  It has {view.machines} of at most {count(view.machine_ceiling, 'machine')}."
    if view.HasField("dollars_per_hour_ceiling"):
        spent, most = view.dollars_per_hour, view.dollars_per_hour_ceiling
        yield f"  Its machines cost ${spent:.2f} of at most ${most:.2f} an hour."
    if view.HasField("priority_ceiling"):
        lowered = f"{view.capped_needs} of its needs" if view.capped_needs else "none of its needs"
        yield f"  Its priorities are capped at {view.priority_ceiling}; {lowered} request more."
    if not view.waiting_needs:
        return
    pods = count(view.waiting_pods, "pod")
    yield f"  {count(view.waiting_needs, 'need')} with {pods} short of machines because of it:"
    for each in view.waiting[:_NAMED_NEEDS]:
        key = each.need
        group = f"/{key.group}" if key.group else ""
        name = f"{key.cluster_id}/{key.profile_fingerprint}{group}"
        yield f"    {count(each.pods, 'pod')} of need {name}, priority {key.priority}"
    if (more := view.waiting_needs - _NAMED_NEEDS) > 0:
        yield f"    and {count(more, 'need')} more"


_NANOS = 1_000_000_000
_NAMED_MACHINES = 3
_SAME = capacity_pb2.NodeSelectorRequirement.SAME


def pod(facts: PodFacts) -> list[str]:
    """A pod's state and its request's."""
    where = f"bound to node {facts.node}" if facts.node else "not bound to a node"
    lines = [f"Pod {facts.name} is {facts.phase or 'without a phase'}, {where}."]
    if facts.problem:
        lines.append(f"{facts.problem[0].upper()}{facts.problem[1:]}.")
    elif facts.need:
        acknowledged = "has been acknowledged" if facts.acknowledged else "is not acknowledged yet"
        lines.append(f"Its CapacityRequest {acknowledged}; its profile is {facts.need[0]}.")
        if facts.gang_members and not facts.acknowledged:
            lines.append(
                f"Its gang has {facts.gang_members} members and is reported once all of them have "
                "a CapacityRequest, or half a minute after the last one was created."
            )
    if facts.short and not facts.node:
        lines.append(f"Machines are short for it: {facts.short}")
    if facts.additional and not facts.node:
        lines.append(
            "kube-scheduler cannot schedule it although no machine is short; "
            f"{count(facts.additional, 'additional machine')} requested."
        )
    return lines


def need(view: wire.NeedView) -> list[str]:
    """A need, its matching supply, its machines with their cost, and its shortfall."""
    return [
        f"Need {view.cluster_id}/{view.profile_fingerprint}, {_priority(view)}, requests "
        f"{_amounts(view.need.aggregate_resources)}{_unit(view)}.",
        *_shape(view),
        *_matched(view),
        *_chosen(view),
        *_missing(view),
    ]


def left_out(cluster: str, needs: int) -> list[str]:
    """What `cluster` requests beyond its limit."""
    if not needs:
        return []
    return [
        f"{count(needs, 'more need')} of cluster {cluster} left out: it requests more than the "
        "limit of one cluster, and those that would be served last are not served"
    ]


def _priority(view: wire.NeedView) -> str:
    claimed, served = view.need.priority, view.served_priority
    if not view.HasField("served_priority") or served == claimed:
        return f"priority {claimed}"
    return f"priority {claimed} (capped at {served} by its cluster's ceiling)"


def _unit(view: wire.NeedView) -> str:
    counts = view.need.sizes.counts
    pods, sizes = sum(counts), len(counts)
    if not sizes:
        return ""
    return f" for {count(pods, 'pod')} of {count(sizes, 'size')}"


def _shape(view: wire.NeedView) -> Iterator[str]:
    is_gang = any(r.operator == _SAME for r in view.need.requirements)
    match group_of_text(view.need.group):
        case FoldedGangs():
            yield "  It folds gangs that fit on one machine each; a pod here is a whole gang."
        case Additional():
            yield "  Its pods cannot be scheduled although no machine is short. Only machines"
            yield "  beyond those of other needs count for it, and no pods are preempted for it."
        case _ if is_gang:
            yield f"  It is the gang {view.need.group}."
        case PodGroup(identifier):
            yield f"  Its pods have spread or anti-affinity constraints: {identifier}."
    for key in view.need.anti_affinity_keys:
        yield f"  At most one of its pods runs in each domain of {key}."
    for term in view.need.spread:
        if term.when_unsatisfiable == capacity_pb2.TopologySpread.DO_NOT_SCHEDULE:
            yield f"  It spreads over {term.topology_key} with a skew of at most {term.max_skew}."


def _matched(view: wire.NeedView) -> Iterator[str]:
    for each in view.by_requirement:
        yield f"  {each.requirement}: {each.machines} machines."
    supply, usable = view.matching_supply, view.usable_supply
    yield f"  Matching: {_supply(supply)}; of these large enough for a pod: {_supply(usable)}."


def _supply(supply: wire.MatchingSupply) -> str:
    counts = (
        (supply.configured, "in use"),
        (supply.idle, "idle"),
        (supply.speculative, "purchasable"),
    )
    return ", ".join(f"{number} {what}" for number, what in counts if number) or "none"


def _chosen(view: wire.NeedView) -> Iterator[str]:
    if not view.counted:
        yield "  It has no machines."
    machine_classes: dict[tuple[str, str, str, str, float], list[str]] = {}
    for each in view.counted:
        state = provider_pb2.MachineState.Name(each.state)
        machine_class = state, each.ordered, each.instance_type, each.zone, each.cost_per_hour
        machine_classes.setdefault(machine_class, []).append(each.machine_id)
    for (state, ordered, instance_type, zone, cost), names in machine_classes.items():
        order = f", {ordered} ordered" if ordered else ""
        named = ", ".join(names[:_NAMED_MACHINES]) + (", ..." if names[_NAMED_MACHINES:] else "")
        what = f"{len(names)} x {instance_type} in {zone}, {state}{order}"
        yield f"  It has pods on {what}, ${cost:.4g} an hour each: {named}."


def _missing(view: wire.NeedView) -> Iterator[str]:
    if view.satisfied:
        yield "  Demand is satisfied; remaining pending pods wait for kube-scheduler."
        return
    for size in _sizes(view.impossible_sizes):
        yield f"  {size}: no machine of the fleet can hold one. This blocks no other pods."
    if not view.short_sizes.counts:
        return
    lacks = "; ".join(_sizes(view.short_sizes))
    yield f"  Unschedulable for {view.age_cycles_unmet} cycles: {lacks}: {view.unmet_reason_text}."
    yield (
        f"  Of the usable machines, {view.free_count} are free and {view.lower_priority_count} "
        "serve lower priorities."
    )
    for offering in view.unavailable_offerings:
        yield f"  In backoff after a failure: {offering}."
    for quota in view.exhausted_quotas:
        yield f"  Quota used up: {quota}; `bigfleet fleet quotas` shows all shards' parts."
    for each in view.same_candidates:
        yield f"  Domain {each.domain} could hold {each.coverage_per_mille / 10:g} % of it."


def _sizes(sizes: capacity_pb2.PodSizes) -> Iterator[str]:
    for size in need_codec.sizes_from_wire(sizes, "sizes") if sizes.counts else ():
        yield f"{count(size.pods, 'pod')} of {_amounts(resources.texts(dict(size.amounts)))}"


def machine(view: wire.MachineView) -> list[str]:
    """A machine's state, purpose, operations and history."""
    known = view.machine
    state = provider_pb2.MachineState.Name(known.state)
    where = f" in cluster {known.cluster}" if known.cluster else ""
    machine_class = known.labels.get(INSTANCE_TYPE_LABEL, "?")
    zone = known.labels.get(ZONE_LABEL, "?")
    return [
        f"Machine {known.id} is {state}{where}: a {machine_class} in {zone} at "
        f"${known.price_per_hour:.4g} an hour, interruption probability "
        f"{known.interruption_probability:g} an hour.",
        *([f"  Nothing is ordered for it: {view.held_reason}."] if view.held_reason else []),
        *_purpose(view),
        *_under_way(view),
        *(f"  {_line(line)}" for line in view.story),
    ]


def _purpose(view: wire.MachineView) -> Iterator[str]:
    if view.not_owned_reason:
        yield f"  This shard does not own it: {view.not_owned_reason}."
        return
    if view.HasField("counted_by"):
        yield f"  It counts for {_reference(view.counted_by)}."
    else:
        yield "  It counts for no need."
        if view.HasField("meant_for"):
            yield f"  It was last acquired for {_reference(view.meant_for)}."
    yield from _limit(view)
    others = [each for each in view.shared_by if each != view.counted_by]
    if others:
        yield f"  Pods of {count(len(others), 'other need')} are placed on it, too."
    if view.HasField("disruption_cost"):
        yield f"  {_release(view.disruption_cost)}"
    if view.headroom:
        yield "  It is headroom, so that the next small gang of its cluster fits on one machine and"
        yield "  is not split by the scheduler."
    if view.unused_since_unix_nanos:
        yield f"  It has been unused since {_moment(view.unused_since_unix_nanos)}."


def _limit(view: wire.MachineView) -> Iterator[str]:
    if not view.HasField("limit"):
        return
    limit = view.limit
    why = f" ({limit.message})" if limit.message else ""
    if limit.broken:
        yield f"  Its Node is {limit.reason}{why}: it is not counted and will be released."
    elif limit.resources:
        amounts = _amounts(limit.resources)
        yield f"  Its Node is {limit.reason}{why}: only what runs there is counted, {amounts}."
    else:
        yield f"  Its Node is {limit.reason}{why} and nothing runs there: it is not counted."


def _release(cost: float) -> str:
    if math.isinf(cost):
        return "Its cluster's operator reports that it must not be released now."
    if not cost:
        return "Its cluster's operator reports that no pods run on it."
    return f"Its cluster's operator reports a disruption cost of {cost:.4g}, 1 for each pod."


def _under_way(view: wire.MachineView) -> Iterator[str]:
    if view.machine.last_error:
        yield f"  Its last error: {view.machine.last_error}."
    if view.order:
        yield f"  Operation in progress: {view.order}."
    if view.evicting:
        purpose = f" for {_reference(view.evicted_for)}" if view.HasField("evicted_for") else ""
        yield f"  Its Node is being drained{purpose}."


def _reference(need: wire.NeedReference) -> str:
    group = f", group {need.group}" if need.group else ""
    name = f"{need.cluster_id}/{need.profile_fingerprint}"
    return f"need {name} (priority {need.priority}{group})"


def _line(line: wire.StoryLine) -> str:
    fields = {k: v for k, v in sorted(line.fields.items()) if k not in ("machine", "decided")}
    fields_text = " ".join(f"{name}={value}" for name, value in fields.items())
    return f"{_moment(line.at_unix_nanos)} {line.event} {fields_text}".rstrip()


def _moment(unix_nanos: int) -> str:
    return datetime.fromtimestamp(unix_nanos / _NANOS, UTC).strftime("%H:%M:%S.%f")[:-3] + "Z"


def _amounts(quantities: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {quantity}" for name, quantity in sorted(quantities.items()))
