"""What a run contributes to a comparison, read from its results. Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from loaddriver.judge.percentiles import Quantile
from loaddriver.judge.schema import Summary
from loaddriver.record.hops import HOPS
from loaddriver.record.rows import PodRow

BIGFLEET = ("shard", "operator", "pod-controller", "provider", "coordinator", "federation")
API = ("kube-apiserver", "etcd")
MACHINE_HOPS = ("provisioned", "nodeReady")
_CONTROLLERS = "BigFleet's operator and pod controller"
REFERENCES: Mapping[str, tuple[str, ...]] = {
    "kwok": ("kwok",),
    "kube-controller-manager": ("kube-controller-manager",),
    _CONTROLLERS: ("operator", "pod-controller"),
}
"""What does the same for each pod on both sides, unless it is what is compared, best first; and the
components that it consists of."""
SHARD_CPU = "shard.cpu"
# Below this a ratio of two waits is that of two latencies of one API request.
_LEAST_WAIT_SECONDS = 0.01
_MILLI = 1000.0

WRITES = "writes to API servers per pod"
"""A number that describes: what both sides' controllers and HEAD itself asked API servers for."""
BYTES = "bytes of objects that API servers received and sent per pod"
DECISIONS = "decisions of the shards"

DUE_TO_BIND = "dueToBind"
SCHEDULED = "scheduled"


@dataclass(frozen=True)
class Endpoint:
    """One of the six numbers that decide; `parts` are what its change can be attributed to.

    `takes_cpu`: it grows on a machine that is slower in that run; simulated latencies do not.
    """

    key: str
    name: str
    unit: str
    parts: tuple[str, ...]
    takes_cpu: bool = True


def cpu_part(component: str) -> str:
    """The name of a component's CPU per pod, such as `shard.cpu`."""
    return f"{component}.cpu"


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(DUE_TO_BIND, "due to bind, geometric mean", "s", HOPS),
    Endpoint(
        "machines",
        "waiting for machines (provisioned, nodeReady)",
        "s/pod",
        MACHINE_HOPS,
        takes_cpu=False,
    ),
    # Of milliseconds for most pods and seconds for a few: the mean itself is that of the few.
    Endpoint(SCHEDULED, "from a ready node to the binding, geometric mean", "s", (SCHEDULED,)),
    Endpoint("bigfleetCpu", "CPU of BigFleet", "ms/pod", tuple(map(cpu_part, BIGFLEET))),
    Endpoint("shardCpu", "CPU of the shards", "ms/decision", (SHARD_CPU,)),
    Endpoint("apiCpu", "CPU of API servers and etcd", "ms/pod", tuple(map(cpu_part, API))),
)
EVENTS: Mapping[str, str] = {
    "neverBound": "pods that were never bound",
    "withdrawn": "pods deleted before they were bound",
    "gangsNotWhole": "gangs that were never whole",
}


class RunMeasures(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One valid run.

    `values` are by endpoint, in its unit, and lack what was not measured. `parts` are seconds per
    pod by hop and milliseconds of CPU per pod by component; `events` are counts. `waits` are, by
    endpoint and object, the mean logarithms of its pods' waits, in seconds. `shared` are
    REFERENCES with a digest of what each is. `system` is the autoscaler under test. `hops`
    are the mean seconds of the hops of each object's bound pods.
    """

    values: dict[str, float]
    parts: dict[str, float]
    events: dict[str, int]
    described: dict[str, float]
    waits: dict[str, dict[str, float]]
    shared: dict[str, str] = msgspec.field(default_factory=dict)
    system: str = "bigfleet"
    hops: dict[str, dict[str, float]] = msgspec.field(default_factory=dict)


class PairMeasures(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A valid pair: log ratios of HEAD to BASE by endpoint, and both runs.

    `shared` are those of the CPU per pod of REFERENCES that are the same on both sides.
    """

    ratios: dict[str, float]
    base: RunMeasures
    head: RunMeasures
    shared: dict[str, float] = msgspec.field(default_factory=dict)


def run_measures(summary: Summary, rows: Sequence[PodRow]) -> RunMeasures:
    """The measures of a run with these results."""
    parts = {**_hops(summary), **_cpu(summary)}
    waits = {DUE_TO_BIND: mean_log_waits(rows, _due_to_bind)}
    if SCHEDULED in parts:
        waits[SCHEDULED] = mean_log_waits(rows, _scheduled)
    found = {
        **{key: _geometric_mean(logs) for key, logs in waits.items()},
        "machines": _sum(parts, MACHINE_HOPS),
        "bigfleetCpu": _sum(parts, map(cpu_part, BIGFLEET)),
        "shardCpu": _cpu_per_decision(summary),
        "apiCpu": _sum(parts, map(cpu_part, API)),
    }
    gangs = summary.gangs
    return RunMeasures(
        values={key: value for key, value in found.items() if value},
        parts=parts,
        events={
            "neverBound": summary.pods.never_bound + summary.pods.never_created,
            "withdrawn": summary.pods.withdrawn,
            "gangsNotWhole": gangs.count - gangs.complete,
        },
        described=_described(summary),
        waits=waits,
        shared=_shared(summary, parts),
        system=summary.run.system,
        hops=_hops_by_object(rows) if SCHEDULED in parts else {},
    )


def _hops_by_object(rows: Iterable[PodRow]) -> dict[str, dict[str, float]]:
    pods = [row for row in rows if row.due_micros is not None and row.bound_micros is not None]
    found: defaultdict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(HOPS, 0.0))
    for row in pods:
        for hop, micros in row.hops_micros().items():
            found[_object_of(row)][hop] += micros / 1e6
    count = Counter(map(_object_of, pods))
    return {
        key: {hop: seconds / count[key] for hop, seconds in each.items()}
        for key, each in found.items()
    }


def _object_of(row: PodRow) -> str:
    return f"{row.cluster}/{row.workload}"


def mean_log_waits(
    rows: Iterable[PodRow], seconds_of: Callable[[PodRow], float | None]
) -> dict[str, float]:
    """By object, the mean logarithm of these seconds of its pods, but those that have none.

    What the plan did not ask for depends on the system under test, and is left out.
    """
    logs: defaultdict[str, list[float]] = defaultdict(list)
    for row in rows:
        seconds = None if row.due_micros is None else seconds_of(row)
        if seconds is not None:
            logs[_object_of(row)].append(math.log(max(seconds, _LEAST_WAIT_SECONDS)))
    return {key: sum(each) / len(each) for key, each in logs.items()}


def pair_measures(base: RunMeasures, head: RunMeasures) -> PairMeasures:
    """The log ratios of two runs; objects that only one of them has do not count."""
    ratios = {
        key: math.log(head.values[key] / base.values[key])
        for key in base.values.keys() & head.values.keys()
    }
    for endpoint in base.waits.keys() & head.waits.keys():
        one, other = base.waits[endpoint], head.waits[endpoint]
        matched = one.keys() & other.keys()
        ratios.pop(endpoint, None)
        if matched:
            changes = (other[key] - one[key] for key in matched)
            ratios[endpoint] = math.fsum(changes) / len(matched)
    shared = {
        name: math.log(_reference_cpu(head.parts, name) / _reference_cpu(base.parts, name))
        for name, digest in base.shared.items()
        if head.shared.get(name) == digest
    }
    return PairMeasures(ratios=ratios, base=base, head=head, shared=shared)


def _due_to_bind(row: PodRow) -> float:
    """A pod that was never bound counts as long as it waited."""
    return row.waited_seconds


def _scheduled(row: PodRow) -> float | None:
    """None of a pod that was never bound, which an event of the run counts."""
    micros = row.hops_micros().get(SCHEDULED)
    return None if micros is None else micros / 1e6


def _geometric_mean(logs: Mapping[str, float]) -> float | None:
    return math.exp(sum(logs.values()) / len(logs)) if logs else None


def _hops(summary: Summary) -> dict[str, float]:
    """Seconds per bound pod; a hop that no pod has takes no time if others were measured."""
    found = summary.hops_seconds
    return {hop: found[hop].mean if hop in found else 0.0 for hop in HOPS} if found else {}


def _cpu(summary: Summary) -> dict[str, float]:
    if summary.resources is None or summary.resources.unknown:
        return {}
    return {
        cpu_part(name): _MILLI * use.cpu_seconds_per_pod
        for name, use in summary.resources.components.items()
        if use.cpu_seconds_per_pod is not None
    }


def _shared(summary: Summary, parts: Mapping[str, float]) -> dict[str, str]:
    source = summary.provenance
    if source is None:
        return {}
    digests = dict(source.binaries)
    if "bigfleet" in source.code:
        # Its settings are the profile's, and a side may have others.
        digests[_CONTROLLERS] = f"{source.code['bigfleet']} {source.inputs.get('profile')}"
    return {
        name: digests[name]
        for name in REFERENCES
        if name in digests and _reference_cpu(parts, name) > 0
    }


def _reference_cpu(parts: Mapping[str, float], name: str) -> float:
    return sum(parts.get(cpu_part(component), 0.0) for component in REFERENCES[name])


def _cpu_per_decision(summary: Summary) -> float | None:
    """Milliseconds; decisions are counted until the metrics were read, shortly after the load."""
    cycles = _decisions(summary)
    shard = None if summary.resources is None else summary.resources.components.get("shard")
    return None if shard is None or not cycles else float(_MILLI * shard.cpu_seconds / cycles)


def _decisions(summary: Summary) -> float | None:
    count = summary.components.get("durations", {}).get("shardCycle", {}).get("count")
    return None if count is None else float(count)


def _described(summary: Summary) -> dict[str, float]:
    """What describes a run and decides nothing."""
    wait, resources, cost = summary.due_to_bind_seconds, summary.resources, summary.cost
    read: Mapping[str, Callable[[], Quantile]] = {
        "due to bind, p50 (s)": lambda: wait.p50,
        "due to bind, p90 (s)": lambda: wait.p90,
        "last binding after its due time, at most (s)": lambda: wait.max,
        WRITES: lambda: resources.writes_per_pod if resources else None,
        BYTES: lambda: resources.api_bytes_per_pod if resources else None,
        DECISIONS: lambda: _decisions(summary),
        "machines configured": lambda: float(summary.machines.configured),
        "dollars per hour, mean": lambda: cost.mean_dollars_per_hour if cost else None,
    }
    found = {name: value() for name, value in read.items()}
    return {name: value for name, value in found.items() if isinstance(value, int | float)}


def _sum(parts: Mapping[str, float], names: Iterable[str]) -> float | None:
    found = [parts[name] for name in names if name in parts]
    return sum(found) if found else None
