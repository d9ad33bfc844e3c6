"""What a cluster's Deployment is made of."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bigfleet.fedhpa.members.objects import WorkloadName
from bigfleet.fedhpa.objects import Workload
from bigfleet.fedhpa.workload.manifests import body_of

_QUARTERS = {"maxSurge": "25%", "maxUnavailable": "25%"}


def _spec(kind: str, **spec: Any) -> dict[str, Any]:
    content = {"selector": {}, "template": {"spec": {}}, **spec}
    workload = {"metadata": {"name": "web"}, "spec": {"template": {"spec": content}}}
    made = body_of(msgspec.convert(workload, Workload), WorkloadName(kind, "n", "web"))
    found: dict[str, Any] = made["spec"]
    return found


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (None, {"type": "RollingUpdate", "rollingUpdate": _QUARTERS}),
        ({"type": "Recreate"}, {"type": "Recreate"}),
        (
            {"rollingUpdate": {"maxSurge": 1}},
            {"type": "RollingUpdate", "rollingUpdate": {**_QUARTERS, "maxSurge": 1}},
        ),
    ],
)
def test_the_whole_strategy_is_ours_so_that_it_can_be_changed_later(
    given: dict[str, Any] | None, made: dict[str, Any]
) -> None:
    assert _spec("Deployment", strategy=given)["strategy"] == made


def test_a_replica_set_has_no_strategy() -> None:
    assert "strategy" not in _spec("ReplicaSet")


def test_replicas_are_never_written() -> None:
    assert "replicas" not in _spec("Deployment")


def test_pods_without_metadata_get_our_label_all_the_same() -> None:
    made = _spec("Deployment", template={"metadata": None, "spec": {}})
    assert list(made["template"]["metadata"]["labels"].values()) == ["deployment.web"]
