"""What recording costs: it runs on the cores that are being measured."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec

from bigfleet.kube import watch
from loaddriver.record.audit import AuditReader
from loaddriver.record.live_counts import LiveCounts, NullListener
from loaddriver.record.watched import Pod
from loaddriver.record.watching import WatchTimestamps
from tests.record.record_rig import EPOCH, at, created, labels, line
from tests.support.cpu_time import slowness

PODS = 2_000
# A tenth of what recorder and driver together may use, on a machine that does other things, too.
MOST_MICROS_PER_POD = 100.0
EVENTS_PER_POD = 4


def whole_pod(number: int, node: str = "") -> dict[str, Any]:
    """A Pod of the size that API servers write."""
    stamp = (EPOCH + timedelta(microseconds=at(0))).isoformat().replace("+00:00", "Z")
    kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    conditions = [{"type": k, "status": "True", "lastTransitionTime": stamp} for k in kinds]
    terms = [{"key": f"key-{n}", "operator": "In", "values": ["a" * 20] * 4} for n in range(8)]
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    tolerations = [
        {"key": f"node.kubernetes.io/t{n}", "operator": "Exists", "tolerationSeconds": 300}
        for n in range(4)
    ]
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": f"web-{number}",
            "namespace": "load",
            "uid": f"uid-{number}",
            "resourceVersion": str(1000 + number),
            "creationTimestamp": stamp,
            "labels": labels(),
            "annotations": {"bigfleet.lucy.sh/interruption-penalty": "32"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "web-abc", "uid": "rs-uid"}],
        },
        "spec": {
            "containers": [{"name": "app", "image": "fake", "resources": {"limits": {"cpu": "1"}}}],
            "nodeName": node,
            "affinity": {"nodeAffinity": affinity},
            "tolerations": tolerations,
        },
        "status": {"phase": "Running" if node else "Pending", "conditions": conditions},
    }


def micros_per_pod(work: Callable[[], None]) -> float:
    """CPU time, the least of three: others on this machine can only add to it."""
    spent = []
    for _ in range(3):
        before = time.process_time()
        work()
        spent.append(time.process_time() - before)
    return min(spent) / PODS * 1e6


def test_reading_the_audit_log_costs_microseconds_a_pod() -> None:
    """Four lines for each pod, the first of them with the whole pod in it twice."""
    wanted = [{"key": f"label-{n}", "operator": "In", "values": ["a", "b"]} for n in range(3)]
    request = {"spec": {"resources": {"cpu": "1", "memory": "1Gi"}, "requirements": wanted}}
    metadata_size = len(created("u", "web", 1))
    lines = []
    for number in range(PODS):
        pod, name = whole_pod(number), f"web-{number}"
        lines += [
            line("create pods", "", 1, body=pod, request=pod),
            line("create pods/binding", name, 2, uid=f"uid-{number}"),
            line("create capacityrequests", f"{name}-cr", 1.5, request=request),
            line("patch capacityrequests/status", f"{name}-cr", 1.9, code=200),
        ]
    assert len(lines[0]) > 4 * metadata_size
    cost = micros_per_pod(lambda: AuditReader(LiveCounts()).take(lines))
    print(f"\naudit log: {cost:.1f} us of CPU per pod, {len(lines[0])} bytes a creation")
    assert cost < MOST_MICROS_PER_POD * slowness()


def test_following_the_watch_costs_microseconds_a_pod() -> None:
    """Four events for each pod, decoded as the watch does it."""
    events = msgspec.json.Decoder(watch.event_of(Pod))
    lines = [
        msgspec.json.encode({"type": "MODIFIED", "object": whole_pod(number, node)})
        for number in range(PODS)
        for node in ("", "", "n1", "n1")
    ]
    assert len(lines) == PODS * EVENTS_PER_POD

    def follow() -> None:
        timestamps = WatchTimestamps(NullListener())
        for raw in lines:
            timestamps.take_pods(watch.Changed(events.decode(raw).object, False), 1)

    cost = micros_per_pod(follow)
    print(f"\nwatch: {cost:.1f} us of CPU per pod, {len(lines[0])} bytes an event")
    assert cost < MOST_MICROS_PER_POD * slowness()
