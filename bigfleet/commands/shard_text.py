"""A shard's answers in plain sentences. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from bigfleet.api import need_codec
from bigfleet.api.v1alpha1 import capacity_pb2, provider_pb2
from bigfleet.api.v1alpha1 import shardread_pb2 as wire
from bigfleet.commands.pod import PodFacts
from bigfleet.model import resources
from bigfleet.model.need import ADDITIONAL_GROUP, FOLDED_GROUP_PREFIX

_NAMED_NEEDS = 10


def ceilings(views: Sequence[wire.CeilingView], cluster: str) -> list[str]:
    """The clusters for which a ceiling holds something back, and how many others there are; of one
    `cluster` that is asked for all is said.
    """
    shown = [view for view in views if cluster or view.waiting_needs or view.capped_needs]
    lines = [line for view in shown for line in _ceiling(view)]
    if others := len(views) - len(shown):
        what = "cluster with a ceiling is" if others == 1 else "clusters with ceilings are"
        lines.append(f"{others} {'other ' if shown else ''}{what} beneath it.")
    return lines or ["No cluster that this shard serves has a ceiling."]


def _ceiling(view: wire.CeilingView) -> Iterator[str]:
    yield f"Cluster {view.cluster_id}:"
    if view.HasField("machine_ceiling"):
        yield f"  It has {view.machines} of at most {_count(view.machine_ceiling, 'machine')}."
    if view.HasField("dollars_per_hour_ceiling"):
        spent, most = view.dollars_per_hour, view.dollars_per_hour_ceiling
        yield f"  It has machines for ${spent:.2f} of at most ${most:.2f} an hour."
    if view.HasField("priority_ceiling"):
        lowered = f"{view.capped_needs} of its needs" if view.capped_needs else "none of its needs"
        yield f"  Its priorities count as {view.priority_ceiling} at most; {lowered} ask for more."
    if not view.waiting_needs:
        return
    pods = _count(view.waiting_pods, "pod")
    yield f"  {_count(view.waiting_needs, 'need')} with {pods} wait for it:"
    for each in view.waiting[:_NAMED_NEEDS]:
        key = each.need
        group = f"/{key.group}" if key.group else ""
        name = f"{key.cluster_id}/{key.profile_fingerprint}{group}"
        yield f"    {_count(each.pods, 'pod')} of need {name}, priority {key.priority}"
    if (more := view.waiting_needs - _NAMED_NEEDS) > 0:
        yield f"    and {_count(more, 'need')} more"


_NANOS = 1_000_000_000
_NAMED_MACHINES = 3
_SAME = capacity_pb2.NodeSelectorRequirement.SAME


def pod(facts: PodFacts) -> list[str]:
    """Where a pod is, and whether anybody knows what it asks for."""
    where = f"bound to node {facts.node}" if facts.node else "not bound to a node"
    lines = [f"Pod {facts.name} is {facts.phase or 'of no phase yet'}, {where}."]
    if facts.problem:
        lines.append(f"{facts.problem[0].upper()}{facts.problem[1:]}.")
    elif facts.need:
        acknowledged = "has been acknowledged" if facts.acknowledged else "is not acknowledged yet"
        lines.append(f"Its CapacityRequest {acknowledged}; its profile is {facts.need[0]}.")
        if facts.gang_members and not facts.acknowledged:
            lines.append(
                f"Its gang has {facts.gang_members} members, and is told to BigFleet once all of "
                "them have a CapacityRequest, or half a minute after the last one came."
            )
    if facts.short and not facts.node:
        lines.append(f"Machines are missing for it: {facts.short}")
    if facts.additional and not facts.node:
        lines.append(
            "kube-scheduler finds no place for it although no machine is missing; so "
            f"{facts.additional} beyond those that are there have been asked for."
        )
    return lines


def need(view: wire.NeedView) -> list[str]:
    """What a need asks for, what could serve it, what it got at what cost, and what it lacks."""
    return [
        f"Need {view.cluster_id}/{view.profile_fingerprint}, {_priority(view)}, asks "
        f"for {_amounts(view.need.aggregate_resources)}{_unit(view)}.",
        *_shape(view),
        *_matched(view),
        *_chosen(view),
        *_missing(view),
    ]


def _priority(view: wire.NeedView) -> str:
    claimed, served = view.need.priority, view.served_priority
    if not view.HasField("served_priority") or served == claimed:
        return f"priority {claimed}"
    return f"priority {claimed} (which counts as {served}, the ceiling of its cluster)"


def _unit(view: wire.NeedView) -> str:
    counts = view.need.sizes.counts
    pods, sizes = sum(counts), len(counts)
    if not sizes:
        return ""
    return f" for {_count(pods, 'pod')} of {_count(sizes, 'size')}"


def _shape(view: wire.NeedView) -> Iterator[str]:
    if view.need.group.startswith(FOLDED_GROUP_PREFIX):
        yield "  It stands for gangs each of which fits on one machine; a pod is a whole gang here."
    elif view.need.group == ADDITIONAL_GROUP:
        yield "  It is of pods that kube-scheduler cannot place though no machine is missing; only"
        yield "  machines beyond those of other needs count for it, and nobody is evicted for it."
    elif any(r.operator == _SAME for r in view.need.requirements):
        yield f"  It is the gang {view.need.group}."
    elif view.need.group:
        yield f"  Its pods spread over domains, or keep away from each other: {view.need.group}."
    for key in view.need.anti_affinity_keys:
        yield f"  At most one of its pods runs in each domain of {key}."
    for term in view.need.spread:
        if term.when_unsatisfiable == capacity_pb2.TopologySpread.DO_NOT_SCHEDULE:
            yield f"  It spreads over {term.topology_key}, skew at most {term.max_skew}."


def _matched(view: wire.NeedView) -> Iterator[str]:
    for each in view.by_requirement:
        yield f"  {each.requirement}: {each.machines} machines."
    supply, usable = view.matching_supply, view.usable_supply
    yield f"  Meeting all of it: {_supply(supply)}; large enough for a pod: {_supply(usable)}."


def _supply(supply: wire.MatchingSupply) -> str:
    counts = (
        (supply.configured, "at work"),
        (supply.idle, "idle"),
        (supply.speculative, "to be bought"),
    )
    return ", ".join(f"{count} {what}" for count, what in counts if count) or "none"


def _chosen(view: wire.NeedView) -> Iterator[str]:
    if not view.counted:
        yield "  It has no machine."
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
        yield "  Nothing is lacking. A pod that waits all the same waits for its scheduler."
        return
    for size in _sizes(view.impossible_sizes):
        yield f"  {size}: no machine of the fleet could ever hold one. Nobody else waits for that."
    if not view.short_sizes.counts:
        return
    lacks = "; ".join(_sizes(view.short_sizes))
    yield f"  No place for {lacks}, for {view.age_cycles_unmet} cycles: {view.unmet_reason_text}."
    yield (
        f"  Of the usable machines {view.free_count} are free and {view.lower_priority_count} "
        "serve lower priorities."
    )
    for offering in view.unavailable_offerings:
        yield f"  Not bought for now: {offering}."
    for each in view.same_candidates:
        yield f"  Domain {each.domain} could hold {each.coverage_per_mille / 10:g} % of it."


def _sizes(sizes: capacity_pb2.PodSizes) -> Iterator[str]:
    for size in need_codec.sizes_from_wire(sizes, "sizes") if sizes.counts else ():
        yield f"{_count(size.pods, 'pod')} of {_amounts(resources.texts(dict(size.amounts)))}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def machine(view: wire.MachineView) -> list[str]:
    """What a machine is, whom it serves, what is being done to it, and what happened to it."""
    known = view.machine
    state = provider_pb2.MachineState.Name(known.state)
    where = f" in cluster {known.cluster}" if known.cluster else ""
    machine_class = known.labels.get("node.kubernetes.io/instance-type", "?")
    zone = known.labels.get("topology.kubernetes.io/zone", "?")
    return [
        f"Machine {known.id} is {state}{where}: a {machine_class} in {zone} at "
        f"${known.price_per_hour:.4g} an hour, interruption probability "
        f"{known.interruption_probability:g} an hour.",
        *_purpose(view),
        *_under_way(view),
        *(f"  {_line(line)}" for line in view.story),
    ]


def _purpose(view: wire.MachineView) -> Iterator[str]:
    if view.not_owned_reason:
        yield f"  This shard does not decide about it: {view.not_owned_reason}."
        return
    if view.HasField("counted_by"):
        yield f"  It counts for {_reference(view.counted_by)}."
    else:
        yield "  No need counts it."
        if view.HasField("meant_for"):
            yield f"  It was last meant for {_reference(view.meant_for)}."
    yield from _limit(view)
    others = [each for each in view.shared_by if each != view.counted_by]
    if others:
        yield f"  Pods of {_count(len(others), 'other need')} are counted on it, too."
    if view.HasField("disruption_cost"):
        yield f"  {_release(view.disruption_cost)}"
    if view.headroom:
        yield "  It is one machine ahead: the next small gang of its cluster shall find room on one"
        yield "  machine, so that the scheduler need not tear it."
    if view.unused_since_unix_nanos:
        yield f"  It has been unused since {_moment(view.unused_since_unix_nanos)}."


def _limit(view: wire.MachineView) -> Iterator[str]:
    if not view.HasField("limit"):
        return
    limit = view.limit
    why = f" ({limit.message})" if limit.message else ""
    if limit.broken:
        yield f"  Its Node is {limit.reason}{why}: nothing counts on it, it is to be given back."
    elif limit.resources:
        amounts = _amounts(limit.resources)
        yield f"  Its Node is {limit.reason}{why}: it counts only for what runs there, {amounts}."
    else:
        yield f"  Its Node is {limit.reason}{why}, and nothing runs there: nothing counts on it."


def _release(cost: float) -> str:
    if math.isinf(cost):
        return "Its cluster's operator says that it must not be given back now."
    if not cost:
        return "Its cluster's operator says that no pods run on it."
    return f"Its cluster's operator says that giving it back would cost {cost:.4g}, 1 for each pod."


def _under_way(view: wire.MachineView) -> Iterator[str]:
    if view.machine.last_error:
        yield f"  Its last error: {view.machine.last_error}."
    if view.order:
        yield f"  An order is under way: {view.order}."
    if view.evicting:
        whom = _reference(view.evicted_for) if view.HasField("evicted_for") else "nobody"
        yield f"  Its Node is being emptied, for {whom}."


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
