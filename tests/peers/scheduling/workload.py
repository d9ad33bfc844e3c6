"""Pods like those of Karpenter's scheduling benchmark, as objects of the Kubernetes API.

Five equal kinds: plain; spread over zones; spread over Nodes; all in one zone; at most one on a
Node. The pods of the middle three have one of seven labels, and all but the plain ones select pods
with their own label. In Karpenter's benchmark a pod that spreads selects one of the seven labels at
random: pods that are not its own, of which BigFleet promises nothing.
"""

from __future__ import annotations

import random
from typing import Any

from bigfleet.model.labels import HOSTNAME_LABEL, ZONE_LABEL

CPU_MILLICORES = 100, 250, 500, 1000, 1500
MEMORY_MEBIBYTES = 100, 256, 512, 1024, 2048, 4096
LETTERS = "abcdefg"
PLAIN, ZONE_SPREAD, HOST_SPREAD, ZONE_AFFINITY, HOST_ANTI_AFFINITY = KINDS = (
    "plain",
    "zone-spread",
    "host-spread",
    "zone-affinity",
    "host-anti-affinity",
)


def make_pods(count: int, seed: int = 42) -> list[dict[str, Any]]:
    """`count` pods; equal arguments give equal pods."""
    choice = random.Random(seed)
    return [_pod(number, KINDS[number * len(KINDS) // count], choice) for number in range(count)]


def _pod(number: int, kind: str, choice: random.Random) -> dict[str, Any]:
    app = kind if kind in (PLAIN, HOST_ANTI_AFFINITY) else f"{kind}-{choice.choice(LETTERS)}"
    requests = {
        "cpu": f"{choice.choice(CPU_MILLICORES)}m",
        "memory": f"{choice.choice(MEMORY_MEBIBYTES)}Mi",
    }
    container = {"name": "main", "image": "pause", "resources": {"requests": requests}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"pod-{number}",
            "namespace": "default",
            "uid": f"00000000-0000-4000-8000-{number:012d}",
            "labels": {"app": app},
        },
        "spec": {"containers": [container], **_constraints(kind, {"matchLabels": {"app": app}})},
    }


def _constraints(kind: str, selector: dict[str, Any]) -> dict[str, Any]:
    key = ZONE_LABEL if kind in (ZONE_SPREAD, ZONE_AFFINITY) else HOSTNAME_LABEL
    required = {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": key, "labelSelector": selector}
        ]
    }
    spread = {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
    }
    constraints: dict[str, dict[str, Any]] = {
        PLAIN: {},
        ZONE_SPREAD: {"topologySpreadConstraints": [spread]},
        HOST_SPREAD: {"topologySpreadConstraints": [spread]},
        ZONE_AFFINITY: {"affinity": {"podAffinity": required}},
        HOST_ANTI_AFFINITY: {"affinity": {"podAntiAffinity": required}},
    }
    return constraints[kind]
