"""A made-up run that looks like a real one: two clusters, a ramp of five steps, a soak with churn.

It is built as stamps, so that rows, summary and report come out of the production code.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from loaddriver.anchors.outcomes import GroupOutcome
from loaddriver.judge.facts import HarnessHealth, RunFacts
from loaddriver.judge.gangs import GroupKey
from loaddriver.judge.schema import Summary
from loaddriver.judge.summary import make_summary
from loaddriver.load.files import LOCUST
from loaddriver.plan.manifests import (
    ARCHETYPE_LABEL,
    GROUP_LABEL,
    RACK_KEY,
    STEP_LABEL,
    WORKLOAD_LABEL,
)
from loaddriver.profile.gates import Gate
from loaddriver.record.audit import AuditTimestamps, Binding, PodCreation, Removal
from loaddriver.record.audit_line import ObjectMetadata
from loaddriver.record.cpu import RUNNER, CpuTimes, CpuUse, CpuWindow
from loaddriver.record.journal import Event, Journal, RollUp
from loaddriver.record.live_counts import NullListener
from loaddriver.record.losses import LoadLosses
from loaddriver.record.provenance import MachineIdentity, Provenance
from loaddriver.record.recorder import Observations
from loaddriver.record.rows import PodRow, build_rows
from loaddriver.record.server_counts import WriteCount
from loaddriver.record.watching import NodeObservation, PodObservation, WatchTimestamps
from loaddriver.run.conclusion import anchored_rows

FILES = [("summary.json", "numbers")]
NOTHING_LOST = LoadLosses(0, 0)
START = 1_790_000_000_000_000
SECOND = 1_000_000
STEPS, STEP_SECONDS, SOAK_SECONDS = 5, 24, 120
SOAK = START + (STEPS * STEP_SECONDS + 10) * SECOND
END = SOAK + SOAK_SECONDS * SECOND
ARCHETYPES = {
    "tiny-stateless": 0.72,
    "cpu-batch": 0.12,
    "memory-cache": 0.12,
    "gpu-training-small": 0.04,
}
_SHARES = (
    ("kube-apiserver", 0.14),
    ("etcd", 0.05),
    ("kube-scheduler", 0.04),
    ("kube-controller-manager", 0.05),
    ("kwok", 0.03),
    ("operator", 0.02),
    ("pod-controller", 0.03),
)
GANGED = {"memory-cache": 4, "gpu-training-small": 6}


@dataclass(frozen=True)
class Run:
    """All that a finished run consists of."""

    facts: RunFacts
    observed: list[Observations]
    journal: Journal
    rows: list[PodRow]
    summary: Summary


@dataclass
class _Cluster:
    """The makings of one cluster."""

    name: str
    random: random.Random
    audit: AuditTimestamps = field(default_factory=AuditTimestamps)
    watch: WatchTimestamps = field(default_factory=lambda: WatchTimestamps(NullListener()))
    stories: dict[str, list[Event]] = field(default_factory=dict)
    rollups: list[RollUp] = field(default_factory=list)
    groups: dict[GroupKey, int] = field(default_factory=dict)
    anchored: list[GroupOutcome] = field(default_factory=list)

    def machine(self, number: int, decided: int) -> tuple[str, str, int]:
        """A machine chosen at `decided` that becomes a ready Node; its name, rack and moment."""
        name, rack = f"{self.name}-m{number:03d}", f"rack-{self.name}-{number // 3}"
        booting = decided + round(self.random.uniform(0.2, 0.9) * SECOND)
        joined = booting + round(self.random.lognormvariate(1.3, 0.3) * SECOND)
        ready = joined + round(self.random.uniform(0.1, 0.6) * SECOND)
        self.audit.nodes_created[name].append(joined)
        observation = NodeObservation(name, {RACK_KEY: rack}, joined + 4000, True, ready)
        self.watch.nodes[f"uid-{name}"] = observation
        self.stories[name] = [
            Event(decided / 1e6, "decided", name, action="Bootstrap", cluster=self.name),
            Event(booting / 1e6, "state", name, "CONFIGURING"),
            Event((ready + 300_000) / 1e6, "state", name, "CONFIGURED"),
        ]
        return name, rack, ready

    def pod(self, labels: Mapping[str, str], created: int) -> str:
        """A pod that is created, seen, rolled up; its UID."""
        uid = f"{self.random.getrandbits(128):032x}"
        meta = ObjectMetadata(f"{labels[WORKLOAD_LABEL]}-{uid[-5:]}", "load", uid, dict(labels))
        self.audit.pods[uid] = PodCreation(meta, created, "replicaset-controller")
        seen = created + round(self.random.lognormvariate(-3, 0.6) * SECOND)
        request = ("load", f"{meta.name}-{uid[:8]}")
        self.audit.requested[request] = seen
        written = seen + round(self.random.uniform(0.3, 1.4) * SECOND)
        self.audit.acknowledged[request] = written
        self.audit.accepted[request] = written - 30_000
        self.rollups.append(RollUp(written - 50_000, written - 40_000))
        late = round(self.random.lognormvariate(-5, 1) * SECOND)
        self.watch.pods[uid] = PodObservation("load", meta.name, dict(labels), created + late)
        return uid

    def bind(self, uid: str, node: str, at: int, writer: str) -> None:
        """Give the pod its node."""
        self.audit.bindings.append(Binding(("load", ""), uid, at, writer))
        observation = self.watch.pods[uid]
        observation.node, observation.phase = node, "Running"
        observation.bound_micros = at + round(self.random.lognormvariate(-5, 1) * SECOND)

    def remove(self, uid: str, at: int) -> None:
        """Delete the pod."""
        name = self.audit.pods[uid].pod.name
        self.audit.removals.append(Removal(("load", name), at))


def _workloads(cluster: _Cluster, pods: int) -> Iterator[dict[str, str]]:
    """Labels, one per pod, gangs whole."""
    names, weights = list(ARCHETYPES), list(ARCHETYPES.values())
    made = number = 0
    while made < pods:
        number += 1
        archetype = cluster.random.choices(names, weights)[0]
        size = min(GANGED.get(archetype, cluster.random.randint(1, 4)), pods - made)
        workload = f"{archetype}-{number}"
        labels = {ARCHETYPE_LABEL: archetype, WORKLOAD_LABEL: workload}
        if archetype in GANGED:
            labels[GROUP_LABEL] = workload
            cluster.groups[cluster.name, workload] = size
        for _ in range(size):
            made += 1
            yield labels


def _ramp(cluster: _Cluster, pods: int, lost: int) -> list[tuple[str, str]]:
    """Pods by steps, a machine for every four; returns UID and node of each pod bound."""
    labels = list(_workloads(cluster, pods))
    per_step, placed, machines = -(-pods // STEPS), [], 0
    for position, mark in enumerate(labels):
        step, place = divmod(position, per_step)
        begin = START + step * STEP_SECONDS * SECOND
        if position % 4 == 0 or place == 0:
            chosen = begin + cluster.random.randint(1_500_000, 5_000_000)
            node, _, ready = cluster.machine(machines, chosen)
            machines += 1
        created = begin + round(place / per_step * 9 * SECOND)
        uid = cluster.pod({**mark, STEP_LABEL: str(step + 1)}, created)
        if position >= pods - lost:
            continue
        queue = round(cluster.random.expovariate(1.6) * SECOND)
        at = max(created + round(cluster.random.uniform(0.006, 0.04) * SECOND), ready + queue)
        anchor = GROUP_LABEL in mark and labels[position - 1] != mark
        cluster.bind(uid, node, at, "system:kube-scheduler")
        if anchor:
            gang = GroupOutcome(cluster.name, mark[GROUP_LABEL], "anchored", pod=uid)
            cluster.anchored.append(gang)
        placed.append((uid, node))
    return placed


def _soak(cluster: _Cluster, placed: list[tuple[str, str]]) -> None:
    """Churn: pods are deleted, and come again at once in the room that is left."""
    for second in range(SOAK_SECONDS - 5):
        for _ in range(2):
            uid, node = placed[cluster.random.randrange(len(placed))]
            at = SOAK + second * SECOND + cluster.random.randrange(SECOND)
            labels = cluster.audit.pods[uid].pod.labels
            if GROUP_LABEL in labels:
                continue
            cluster.remove(uid, at)
            fresh = cluster.pod({**labels, STEP_LABEL: str(STEPS + 1)}, at + 20_000)
            waited = round(cluster.random.lognormvariate(-4, 0.6) * SECOND)
            cluster.bind(fresh, node, at + 20_000 + waited, "system:kube-scheduler")


def _cpu_use() -> CpuUse:
    """Two cores, four fifths busy, in windows of ten seconds."""
    shares = {
        RUNNER: 0.015,
        LOCUST: 0.005,
        "provider": 0.02,
        "shard-0": 0.09,
        **{f"{cluster}/{name}": share for cluster in ("c0", "c1") for name, share in _SHARES},
    }
    used = {name: 20 * share for name, share in shares.items()}
    run = sum(used.values())
    window = CpuWindow(10.0, CpuTimes(run + 0.4, 20.0, 0.1), run, used, {"make (7)": 0.3})
    memory = {name: round(1e6 * (40 + 900 * share)) for name, share in shares.items()}
    return CpuUse(24 * (window,), memory)


def _facts(pods: int, groups: dict[GroupKey, int]) -> RunFacts:
    return RunFacts(
        id="20260921-143320-dev-50",
        profile="dev-50",
        seed=1,
        substrate="local",
        started_micros=START,
        soak_started_micros=SOAK,
        ended_micros=END,
        planned_pods=pods,
        planned_groups=groups,
        versions={"bigfleet": "0.1.0", "kubernetes": "1.36.3", "etcd": "3.7.3", "kwok": "0.8.0"},
        environment={
            "Machine": "2 cores, 24 GiB",
            "System": "Debian 12, Linux 6.1",
            "Python": "3.11.7",
            "Calibration": "a fixed sum took 1.02 s before, 1.05 s after",
        },
        load={
            "requestsSent": 612,
            "requestsFailed": 0,
            "requestsRetried": 2,
            "maxLatenessSeconds": 0.1184,
            "p99LatenessSeconds": 0.0184,
        },
        anchors="on",
        clock_offset_seconds=0.0,
        harness_health=HarnessHealth(
            loop_stall_max_seconds=0.21,
            loop_stalls=3,
            clock_step_max_seconds=0.0004,
            cpu=_cpu_use(),
        ),
        provenance=Provenance(
            revision="c0ffee" + 34 * "0",
            dirty=True,
            code={"loaddriver": 64 * "a"},
            inputs={"plan": 64 * "b"},
            dependencies=64 * "c",
            binaries={"etcd": 64 * "d", "node": "kindest/node:v1.36.1"},
            machine=MachineIdentity(id="0123456789abcdef", calibration_seconds=0.0123),
        ),
        components={
            "shardCycleSeconds": {"p50": 0.0041, "p99": 0.0123},
            "rollupSendSeconds": {"p99": 0.0311},
            "shortfalls": 0,
        },
    )


def gate(
    name: str,
    metric: str,
    limit: float,
    unit: str = "seconds",
    op: Literal["<=", ">=", "=="] = "<=",
) -> Gate:
    """A gate of a profile."""
    origin = f"Made up for this run: {limit:g} {unit} is twice what calm runs need."
    return Gate(name=name, metric=metric, op=op, limit=limit, unit=unit, origin=origin)


GATES = (
    gate("every pod was created", "pods.created", 1, "pods", ">="),
    gate("no pod was left unbound", "pods.neverBound", 0, "pods", "=="),
    gate("due to bind, p50", "dueToBindSeconds.p50", 20),
    gate("due to bind, p99", "dueToBindSeconds.p99", 60),
    gate("due to bind in the soak, p90", "soak.dueToBindSeconds.p90", 1),
    gate("complete gangs", "gangs.completeShare", 1, "of all gangs", ">="),
    gate("due to bind of each archetype, p50", "archetypes.*.dueToBindSeconds.p50", 12),
    gate("shard cycle, p99", "components.shardCycleSeconds.p99", 0.1),
)


def make_run(pods: int = 5000, lost: int = 0, gates: tuple[Gate, ...] = GATES) -> Run:
    """A run of `pods` pods in two clusters, `lost` of them in each never bound."""
    clusters = [_Cluster(name, random.Random(name)) for name in ("c0", "c1")]
    for cluster in clusters:
        placed = _ramp(cluster, pods // 2, lost)
        _soak(cluster, placed)
        cluster.audit.lines = 3 * len(cluster.audit.pods)
        cluster.audit.succeeded["create pods"] = len(cluster.audit.pods)
        cluster.audit.failed["create pods/binding 409"] = 2
    observed = [
        Observations(
            each.name,
            each.audit,
            each.watch,
            17,
            2,
            0,
            END,
            watch_events=900,
            audit_events_lost=0,
            writes={
                "create pods/binding": WriteCount(len(each.audit.bindings), 2),
                "patch pods/status": WriteCount(2 * len(each.audit.bindings), 0),
            },
        )
        for each in clusters
    ]
    journal = Journal(
        {name: s for each in clusters for name, s in each.stories.items()},
        0,
        {each.name: sorted(each.rollups) for each in clusters},
    )
    facts = _facts(pods, {key: n for each in clusters for key, n in each.groups.items()})
    rows = anchored_rows(build_rows(observed, journal), [a for c in clusters for a in c.anchored])
    rows = [_due(row) for row in rows]
    summary = make_summary(facts, observed, rows, gates, journal, losses=NOTHING_LOST)
    return Run(facts, observed, journal, rows, summary)


def _due(row: PodRow) -> PodRow:
    """The row with a due time shortly before its creation, if the plan asked for the pod."""
    lag = round(0.02 * SECOND) + zlib.crc32(row.uid.encode()) % SECOND // 20
    return row if row.created_micros >= SOAK else replace(row, due_micros=row.created_micros - lag)


def judged(run: Run, gates: tuple[Gate, ...] = GATES, **changes: object) -> Summary:
    """The run's summary with other facts."""
    facts = replace(run.facts, **changes)  # type: ignore[arg-type]
    return make_summary(facts, run.observed, run.rows, gates, run.journal, losses=NOTHING_LOST)
