"""Many machines for a provider whose operations complete at once."""

from __future__ import annotations

from collections.abc import Iterator

from bigfleet.api.v1alpha1 import provider_pb2 as wire

TYPES = 8
MACHINES_PER_RACK = 48
MACHINES_PER_ZONE = 20_000


def cluster_of(number: int, clusters: int) -> str:
    """The cluster of a machine."""
    return f"cluster-{number % clusters:04d}"


def machines(
    count: int, clusters: int, metadata: dict[int, dict[str, str]]
) -> Iterator[wire.Machine]:
    """`count` machines, those with metadata at work, the others idle; those of a rack are alike."""
    for number in range(count):
        kind, zone = number % TYPES, number // MACHINES_PER_ZONE
        rack = number % MACHINES_PER_ZONE // (MACHINES_PER_RACK * TYPES)
        amounts = {"cpu": str(2 ** (kind % 4 + 1)), "memory": f"{2 ** (kind % 4 + 3)}Gi"}
        resources = wire.Resources(resources={**amounts, "pods": "110"})
        known = metadata.get(number)
        yield wire.Machine(
            id=f"m-{number:06d}",
            state=wire.CONFIGURED if known else wire.IDLE,
            host=wire.HostRef(provider="stand-in", ref=f"h-{number}"),
            instance_type=f"t{kind}.large",
            zone=f"zone-{zone}",
            capacity_type=wire.ON_DEMAND,
            price_per_hour=0.1 * (kind + 1),
            resources=resources,
            allocatable=resources,
            labels={
                "topology.bigfleet/rack": f"rack-{zone}-{rack}-{kind}",
                "kubernetes.io/hostname": f"m-{number:06d}",
            },
            cluster=cluster_of(number, clusters) if known else "",
            shard_metadata=known,
        )
