"""Where claims, volumes and storage classes let a Pod run, as kube-scheduler takes them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bigfleet.controllers.pod_controller.free_volumes import free_choices
from bigfleet.controllers.pod_controller.pods import Pod
from bigfleet.controllers.pod_controller.storage import (
    Claim,
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
    with pytest.raises(Unsupported, match="pv-1, which is local to a Node"):
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


def _claim(**more: Any) -> Claim:
    """10 GiB, to be written from one Node, of class zonal."""
    spec = {
        "storageClassName": "zonal",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "10Gi"}},
        **more,
    }
    return msgspec.convert({"metadata": {"name": "db", "namespace": "team"}, "spec": spec}, Claim)


def _free(
    where: str | None, status: dict[str, Any] | None = None, zone_key: str = _ZONE, **more: Any
) -> Volume:
    """A volume of that zone, or of all, which the claim may take but for what is said."""
    terms = {"required": {"nodeSelectorTerms": [_term(_in(zone_key, where))]}} if where else {}
    spec = {
        "storageClassName": "zonal",
        "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
        "capacity": {"storage": "10Gi"},
        "nodeAffinity": terms,
        **more,
    }
    labels = {"disk": "fast" if where == "a" else "slow"}
    raw = {"metadata": {"name": f"pv-{where}", "labels": labels}, "spec": spec}
    return msgspec.convert({**raw, "status": status or {"phase": "Available"}}, Volume)


def test_a_claim_of_a_class_without_provisioner_may_take_any_free_volume_that_fits() -> None:
    """The many volumes of a few zones are one list of zones."""
    volumes = [_free("b"), _free("a"), _free("b")]
    assert free_choices(_claim(), volumes) == [[[_in(_ZONE, "a", "b")]]]
    rack = _free("r1", zone_key="example.com/rack")
    assert free_choices(_claim(), [_free("a"), rack]) == [
        [[_in("example.com/rack", "r1")], [_in(_ZONE, "a")]]
    ]
    assert free_choices(_claim(), [_free("a"), _free(None)]) == []


@pytest.mark.parametrize(
    "unfit",
    [
        _free("b", storageClassName="other"),
        _free("b", capacity={"storage": "9Gi"}),
        _free("b", accessModes=["ReadOnlyMany"]),
        _free("b", volumeMode="Block"),
        _free("b", claimRef={"name": "db", "namespace": "another"}),
        _free("b", status={"phase": "Released"}),
    ],
    ids=["class", "size", "access-mode", "mode", "taken", "released"],
)
def test_a_volume_that_a_claim_cannot_use_does_not_constrain_its_pod(
    unfit: Volume,
) -> None:
    assert free_choices(_claim(), [_free("a"), unfit]) == [[[_in(_ZONE, "a")]]]
    assert free_choices(_claim(), [unfit]) is None


def test_a_claim_uses_only_volumes_that_it_selects_or_that_are_reserved_for_it() -> None:
    fast = _claim(selector={"matchLabels": {"disk": "fast"}})
    assert free_choices(fast, [_free("a"), _free("b")]) == [[[_in(_ZONE, "a")]]]
    kept = _free("b", claimRef={"name": "db", "namespace": "team"})
    assert free_choices(_claim(), [kept]) == [[[_in(_ZONE, "b")]]]


def test_where_volumes_of_the_class_are_within_nodes_a_new_machine_may_bring_one() -> None:
    """Nothing is said of where it must be, even if the claim may take none that is there."""
    local = _free("n-1", zone_key="kubernetes.io/hostname", capacity={"storage": "1Gi"})
    assert free_choices(_claim(), [local]) is None
    assert free_choices(_claim(), [local, _free("a")]) is None
