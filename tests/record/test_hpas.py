"""Audit logs say what became of each member's HPA, and how the federation saw its members."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from loaddriver.record.hpas import HpaWrite, Share, federated_statuses, hpa_writes

HPAS = "horizontalpodautoscalers"


def line(second: int, resource: str = HPAS, code: int = 200, **more: Any) -> str:
    moment = f"2026-01-01T00:00:{second:02d}.000000Z"
    content = {
        "stage": "ResponseComplete",
        "verb": "patch",
        "requestReceivedTimestamp": moment,
        "stageTimestamp": moment,
        "user": {"username": "bigfleet-fedhpa"},
        "objectRef": {"resource": resource, "namespace": "federated", "name": "federated"},
        "responseStatus": {"code": code},
        **more,
    }
    return json.dumps(content, separators=(",", ":"))


def hpa(least: int, most: int, current: int = 0, desired: int = 0) -> dict[str, Any]:
    status = {"currentReplicas": current, "desiredReplicas": desired}
    return {"spec": {"minReplicas": least, "maxReplicas": most}, "status": status}


def written(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_writes_of_all_clusters_come_in_order_of_time(tmp_path: Path) -> None:
    one = written(tmp_path / "one", line(3, responseObject=hpa(2, 8)))
    two = written(tmp_path / "two", line(1, responseObject=hpa(2, 12, 3, 4)))
    first, second = hpa_writes({"c1": one, "c2": two})
    assert (first.cluster, first.share, first.current, first.desired) == ("c2", Share(2, 12), 3, 4)
    assert (second.cluster, second.share) == ("c1", Share(2, 8))
    assert second.at_micros - first.at_micros == 2_000_000


def test_a_refused_write_and_other_kinds_are_passed_over(tmp_path: Path) -> None:
    log = written(
        tmp_path / "log",
        line(1, code=409, responseObject=hpa(2, 8)),
        line(2, resource="pods", responseObject={}),
    )
    assert hpa_writes({"c1": log}) == []


def test_a_removed_hpa_has_no_share(tmp_path: Path) -> None:
    log = written(tmp_path / "log", line(1, verb="delete"))
    [gone] = hpa_writes({"c1": log})
    assert gone.share is None


def test_the_controllers_writes_are_told_from_the_federations(tmp_path: Path) -> None:
    own = {"username": "system:serviceaccount:kube-system:horizontal-pod-autoscaler"}
    log = written(
        tmp_path / "log", line(1, user=own, verb="update", responseObject=hpa(2, 8, 3, 5))
    )
    [scaled] = hpa_writes({"c1": log})
    assert isinstance(scaled, HpaWrite)
    assert not scaled.by_federation
    assert scaled.desired == 5


def test_a_status_of_the_whole_says_how_each_member_was_seen(tmp_path: Path) -> None:
    clusters = [{"name": "c1", "state": "Scaling"}, {"name": "c3", "state": "Unreachable"}]
    kind = "federatedhorizontalpodautoscalers"
    log = written(
        tmp_path / "log", line(1, resource=kind, responseObject={"status": {"clusters": clusters}})
    )
    [status] = federated_statuses(log)
    assert status.states == {"c1": "Scaling", "c3": "Unreachable"}
