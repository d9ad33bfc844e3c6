"""Where claims, volumes and storage classes let a Pod run, as kube-scheduler takes them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bigfleet.controllers.pod_controller.pods import Pod
from bigfleet.controllers.pod_controller.storage import (
    StorageClass,
    Volume,
    claims_of,
    class_choices,
    volume_choices,
)
from bigfleet.controllers.podspec.unsupported import Unsupported

_ZONE = "topology.kubernetes.io/zone"


def _volume(*terms: dict[str, Any], **labels: str) -> Volume:
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": list(terms)}}} if terms else {}
    raw = {"metadata": {"name": "pv-1", "labels": labels}, "spec": affinity}
    return msgspec.convert(raw, Volume)


def _in(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def _term(*expressions: dict[str, Any]) -> dict[str, Any]:
    return {"matchExpressions": list(expressions)}


def test_a_volume_can_be_reached_where_its_node_affinity_says() -> None:
    first, second = _in(_ZONE, "a"), _in("example.com/rack", "r1")
    assert volume_choices(_volume(_term(first, second))) == [[[first, second]]]
    assert volume_choices(_volume(_term(first), _term(second))) == [[[first], [second]]]
    assert volume_choices(_volume()) == []


def test_zones_in_a_volumes_labels_hold_too() -> None:
    labels = {_ZONE: "a__b", "failure-domain.beta.kubernetes.io/region": "r", "app": "db"}
    assert volume_choices(_volume(**labels)) == [
        [[_in("topology.kubernetes.io/region", "r")]],
        [[_in(_ZONE, "a", "b")]],
    ]


@pytest.mark.parametrize(
    "key",
    [
        "topology.ebs.csi.aws.com/zone",
        "topology.gke.io/zone",
        "topology.disk.csi.azure.com/zone",
    ],
)
def test_a_storage_drivers_own_word_for_the_zone_is_taken_for_the_zone(key: str) -> None:
    """A machine that is still to come has no driver yet that would label its Node."""
    assert volume_choices(_volume(_term(_in(key, "a")))) == [[[_in(_ZONE, "a")]]]


def test_a_disk_within_a_node_can_be_reached_from_no_other_machine() -> None:
    with pytest.raises(Unsupported, match="pv-1, which is on a Node of its own"):
        volume_choices(_volume(_term(_in("kubernetes.io/hostname", "n-1"))))


def test_a_class_puts_volumes_where_its_topologies_allow() -> None:
    topologies = [
        {"matchLabelExpressions": [{"key": _ZONE, "values": ["a", "b"]}]},
        {"matchLabelExpressions": [{"key": "topology.gke.io/zone", "values": ["c"]}]},
    ]
    raw = {"metadata": {"name": "fast"}, "allowedTopologies": topologies}
    allowed = class_choices(msgspec.convert(raw, StorageClass))
    assert allowed == [[[_in(_ZONE, "a", "b")], [_in(_ZONE, "c")]]]
    assert class_choices(msgspec.convert({"metadata": {"name": "any"}}, StorageClass)) == []


def test_claims_are_those_of_the_pods_volumes_ephemeral_ones_by_the_pods_name() -> None:
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "db"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "config", "configMap": {"name": "c"}},
    ]
    raw = {
        "metadata": {"name": "p", "namespace": "team", "uid": "u"},
        "spec": {"containers": [], "volumes": volumes},
    }
    pod = msgspec.json.decode(msgspec.json.encode(raw), type=Pod)
    assert list(claims_of(pod)) == [("team", "db"), ("team", "p-scratch")]
