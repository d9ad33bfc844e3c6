"""Values of charts/scaletest that a kind cluster needs beside those of the profile, and volumes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from bigfleet.model.resources import CPU, parse
from kind.images.builder import Image
from kind.nodeimage.components import etcd_tag
from kind.nodeimage.node import NodeImage
from loaddriver.kindrun.prerequisites import (
    FLEET_IMAGE,
    KARPENTER_IMAGE,
    METRICS_SERVER_IMAGE,
)

CHART = Path(__file__).resolve().parents[2] / "charts" / "scaletest"
RESULTS = "results"
_STATE = "state"
_RESULTS_FOLDER = "/var/scaletest/results"
# In memory, as a run measures no disks: a node's /tmp is a tmpfs.
_STATE_FOLDERS = "/tmp/scaletest"
# Of a claim that is larger than what is there nobody takes notice.
_CAPACITY = "100Gi"
# What kubeadm's own pods request, and those of the release whose requests are no values.
_OTHERS_MILLICORES = 1200
# Of what these leave. Nothing else is late if a core is not had within some milliseconds.
_COORDINATORS_SHARE = 0.75

Values = Mapping[str, Any]


def kind_values(
    profile: Values, images: Mapping[str, Image], node_image: NodeImage, cores: float
) -> dict[str, Any]:
    """What is to be merged into the `profile`'s values; the node has that many `cores`.

    Requests of CPU are lowered together, so far that all pods find a place, and each still has its
    share of full cores; a coordinator has more than that.
    """
    return merged(
        _lowered(profile, cores),
        {
            "global": {"loaddriver": _image(images["loaddriver"])},
            "controlPlane": {
                "kwok": _image(images["kwok"]),
                **_optional("metricsServer", METRICS_SERVER_IMAGE, images),
                **_optional("karpenter", KARPENTER_IMAGE, images),
                **_tags(node_image),
            },
            "results": {"className": RESULTS},
            "bigfleet": {
                **_optional("image", FLEET_IMAGE, images),
                "coordinator": {"storage": {"className": _STATE}},
                "shard": {"storage": {"className": _STATE}},
            },
        },
    )


def folders(profile: Values) -> dict[str, str]:
    """The folder of the node for each volume of a release, by the volume's name."""
    number = _replicas(profile, "coordinator") + _replicas(profile, "shard")
    states = (f"{_STATE}-{each}" for each in range(number))
    return {RESULTS: _RESULTS_FOLDER, **{name: f"{_STATE_FOLDERS}/{name}" for name in states}}


def volumes(profile: Values) -> Iterator[dict[str, Any]]:
    """A PersistentVolume for each claim of a release; no provisioner is needed."""
    for name, folder in folders(profile).items():
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "storageClassName": name.partition("-")[0],
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": _CAPACITY},
                "hostPath": {"path": folder, "type": "Directory"},
            },
        }


def merged(*given: Values) -> dict[str, Any]:
    """The values together, later ones before earlier ones, as helm merges files."""
    found: dict[str, Any] = {}
    for values in given:
        for key, value in values.items():
            former = found.get(key)
            if isinstance(former, Mapping) and isinstance(value, Mapping):
                value = merged(former, value)
            found[key] = value
    return found


def _image(image: Image) -> dict[str, str]:
    repository, _, tag = image.reference.rpartition(":")
    return {"repository": repository, "tag": tag}


def _optional(key: str, name: str, images: Mapping[str, Image]) -> dict[str, Any]:
    return {key: _image(images[name])} if name in images else {}


def _tags(node_image: NodeImage) -> dict[str, Any]:
    """Of Kubernetes' own images, where the node has brought them along."""
    if not node_image.air_gapped:
        return {}
    versions = node_image.versions
    return {
        "kubernetes": {"tag": f"v{versions['kube-apiserver']}"},
        "etcd": {"tag": etcd_tag(versions["etcd"])},
    }


def _lowered(profile: Values, cores: float) -> dict[str, Any]:
    chart, fleet = _defaults(CHART), _fleet_defaults()
    coordinators, usual = _replicas(profile, "coordinator"), _millicores(fleet["coordinator"])
    there = max(0.0, 1000 * cores - _OTHERS_MILLICORES)
    # A leader that is stopped for half a second loses its term: a share of full cores is too late.
    least = min(usual, there * _COORDINATORS_SHARE / coordinators) if coordinators else 0.0
    others = _requested(profile) - coordinators * usual
    fraction = min(1.0, (there - coordinators * least) / others)
    lowered = _scaled(
        {
            **{key: chart[key] for key in _PARTS},
            "bigfleet": {"shard": fleet["shard"]},
        },
        fraction,
    )
    given = {"coordinator": _scaled(fleet["coordinator"], max(least / usual, fraction))}
    return merged(lowered, {"bigfleet": given})


def _requested(profile: Values) -> int:
    """The millicores that all pods of a release request by default, at most."""
    chart, fleet = _defaults(CHART), _fleet_defaults()
    federated = profile.get("federation", {}).get("enabled", False)
    workers = profile.get("load", {}).get("workers", 1)
    # The provider's machines are made by what needs as much as the runner.
    found: int = (
        (profile["clusters"] + federated) * _of_cluster(profile, chart)
        + 2 * _millicores(chart["runner"])
        + (workers if workers > 1 else 0) * _millicores(chart["load"])
        + federated * _millicores(chart["federation"])
        + sum(_replicas(profile, name) * _millicores(fleet[name]) for name in _REPLICATED)
    )
    return found


def _of_cluster(profile: Values, chart: Values) -> int:
    system = profile.get("nestedClusters", {}).get("system", "bigfleet")
    absent = set() if system == "bigfleet" else {"operator", "podController"}
    absent |= set() if system == "karpenter" else {"karpenter"}
    requests = chart["controlPlane"]["resources"]
    return _millicores({name: each for name, each in requests.items() if name not in absent})


_PARTS = ("controlPlane", "provider", "runner", "load", "federation")
_REPLICATED = ("coordinator", "shard")


def _replicas(profile: Values, role: str) -> int:
    if "bigfleet" not in profile:
        return 0  # another system is measured
    given = profile["bigfleet"].get(role, {}).get("replicas")
    found: int = _fleet_defaults()[role]["replicas"] if given is None else given
    return found


def _millicores(values: Values) -> int:
    return sum(amount for _, amount in _cpu_requests(values))


def _scaled(values: Values, fraction: float) -> dict[str, Any]:
    """The requests of CPU alone, each at least a millicore."""
    found: dict[str, Any] = {}
    for path, amount in _cpu_requests(values):
        scaled: Any = f"{max(1, int(amount * fraction))}m"
        for key in reversed(path):
            scaled = {key: scaled}
        found = merged(found, scaled)
    return found


def _cpu_requests(values: Values, path: Sequence[str] = ()) -> Iterator[tuple[Sequence[str], int]]:
    """The millicores of each request, and its keys."""
    for key, value in values.items():
        if (*path, key)[-2:] == ("requests", CPU):
            yield (*path, key), parse(CPU, str(value), round_up=True)
        elif isinstance(value, Mapping):
            yield from _cpu_requests(value, (*path, key))


def _fleet_defaults() -> dict[str, Any]:
    return _defaults(CHART.with_name("bigfleet"))


def _defaults(chart: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((chart / "values.yaml").read_text())
    return found
