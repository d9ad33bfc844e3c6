"""Somebody's pod becomes an archetype with its constraints, or is refused with the place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from loaddriver.errors import ProfileError
from loaddriver.profile.pod_template import archetype_keys

EXAMPLE = Path(__file__).parents[3] / "examples" / "archetype" / "checkout.yaml"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def pod(**spec: Any) -> dict[str, Any]:
    requests = {"cpu": "1", "memory": "1Gi"}
    container = {"name": "app", "resources": {"requests": requests}}
    return {"kind": "Pod", "spec": {"containers": [container], **spec}}


def test_a_deployment_keeps_everything_that_decides_where_its_pods_go() -> None:
    """Requests add up over containers; a limit stands for a request that is not given."""
    found = archetype_keys(yaml.safe_load(EXAMPLE.read_text()), "checkout.yaml")
    assert found == {
        "sizes": [{"cpuMillicores": 750, "memoryMebibytes": 1152}],
        "nodeSelector": {"scaletest.bigfleet/instance-family": "m6"},
        "tolerations": [{"key": "spot", "effect": "NoSchedule"}],
        "zones": ["zone-a", "zone-b"],
        "antiAffinity": "hostname",
    }


def test_the_largest_init_container_counts_where_it_is_larger_than_the_pod() -> None:
    init = {"name": "init", "resources": {"requests": {"cpu": "3", "memory": "64Mi"}}}
    [size] = archetype_keys(pod(initContainers=[init]), "x")["sizes"]
    assert size == {"cpuMillicores": 3000, "memoryMebibytes": 1024}


def test_devices_are_requested_in_whole_numbers() -> None:
    body = pod()
    body["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "2"}
    [size] = archetype_keys(body, "x")["sizes"]
    assert size["extendedResources"] == {"nvidia.com/gpu": 2}


def test_spread_over_zones_and_softly_over_machines_is_kept() -> None:
    zones = {"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 1}
    hosts = {"topologyKey": "kubernetes.io/hostname", "maxSkew": 2}
    constraints = [
        {**zones, "whenUnsatisfiable": "DoNotSchedule"},
        {**hosts, "whenUnsatisfiable": "ScheduleAnyway"},
    ]
    assert archetype_keys(pod(topologySpreadConstraints=constraints), "x")["spread"] == {
        "share": 1,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "hostnameMaxSkew": 2,
    }


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"volumes": [{"name": "d", "persistentVolumeClaim": {}}]}, r"volumes\.d"),
        ({"schedulerName": "mine"}, "schedulerName"),
        ({"priorityClassName": "high"}, "give the archetype a priority"),
        ({"affinity": {"podAffinity": {_REQUIRED: [{}]}}}, "give the archetype a gang"),
        ({"tolerations": [{"operator": "Exists"}]}, "tolerations"),
        ({"initContainers": [{"restartPolicy": "Always"}]}, "sidecars"),
        ({"containers": [{"name": "app"}]}, "cpu and memory must be requested"),
        ({"containers": []}, r"no spec\.containers"),
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        _REQUIRED: {
                            "nodeSelectorTerms": [
                                {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
                            ]
                        }
                    }
                }
            },
            "affinity.nodeAffinity: a Exists",
        ),
    ],
)
def test_what_cannot_be_played_is_refused_with_its_place(spec: dict[str, Any], named: str) -> None:
    with pytest.raises(ProfileError, match=named):
        archetype_keys(pod(**spec), "x")
