"""What `bigfleet fedhpa` shows, and what it makes of a kubeconfig."""

from __future__ import annotations

import base64
import copy
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from bigfleet.commands.fedhpa_join import complete
from bigfleet.commands.fedhpa_status import lines
from bigfleet.fedhpa.objects import Autoscaler
from bigfleet.fedhpa.shares.records import Reason
from bigfleet.model.errors import InvalidInput

_BODY: dict[str, Any] = {
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {
        "scaleTargetRef": {"kind": "FederatedDeployment", "name": "web"},
        "minReplicas": 2,
        "maxReplicas": 20,
    },
    "status": {
        "currentReplicas": 12,
        "desiredReplicas": 12,
        "conditions": [
            {
                "type": "ClustersReachable",
                "status": "False",
                "reason": "Unreachable",
                "message": "keeping their shares: cloud does not answer",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
        "clusters": [
            {
                "name": "onprem",
                "state": "AtLimit",
                "minReplicas": 1,
                "maxReplicas": 10,
                "currentReplicas": 10,
                "desiredReplicas": 10,
                "scheduledReplicas": 10,
                "lastMove": {
                    "time": "2026-01-01T00:00:00Z",
                    "reason": "at its limit",
                    "change": "min 1, max 5 -> min 1, max 10",
                },
            },
            {"name": "cloud", "state": "Unreachable", "minReplicas": 1, "maxReplicas": 10},
        ],
    },
}


# 2026-01-01T00:05:00Z
_NOW = 1767225900.0


def _shown(**changes: Any) -> list[str]:
    return list(lines(msgspec.convert(_BODY | changes, Autoscaler), _NOW))


def test_each_cluster_is_a_line_with_its_last_move_and_why() -> None:
    shown = _shown()
    assert shown[0] == (
        "shop/web scales FederatedDeployment web between 2 and 20: 12 current, 12 desired"
    )
    assert shown[1].split()[:4] == ["CLUSTER", "STATE", "MIN", "MAX"]
    assert shown[2].endswith("5 min ago")
    assert shown[-1] == "  onprem: min 1, max 5 -> min 1, max 10: at its limit"
    assert shown[3].split()[:6] == ["cloud", "Unreachable", "1", "10", "-", "-"]


def test_without_clusters_only_the_heads_are_shown() -> None:
    assert _shown(status={})[1:] == ["  CLUSTER  STATE  MIN  MAX  CURRENT  DESIRED  PLACED  MOVED"]


def test_only_problems_are_listed_beneath() -> None:
    assert _shown()[4] == (
        "  ClustersReachable is False: keeping their shares: cloud does not answer"
    )


def test_no_line_is_wider_than_a_terminal_however_long_a_reason_is() -> None:
    status = copy.deepcopy(_BODY["status"])
    status["clusters"][0]["lastMove"]["reason"] = Reason.OPENED.value
    status["conditions"][0]["message"] = "cluster cloud: " + "a long story, " * 20
    shown = _shown(status=status)
    assert max(map(len, shown)) <= 80
    assert "a long story" in shown[5]


def test_a_message_of_two_conditions_is_shown_once() -> None:
    status = copy.deepcopy(_BODY["status"])
    status["conditions"].append(status["conditions"][0] | {"type": "BoundsApplied"})
    assert sum("keeping their shares" in line for line in _shown(status=status)) == 1


def test_one_that_is_terminating_is_shown_as_such() -> None:
    metadata = {**_BODY["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert any("is being deleted" in line for line in _shown(metadata=metadata))


_CURRENT = {
    "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
    "current-context": "x",
}


def test_a_kubeconfig_takes_in_the_files_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("CA")
    content = {
        "clusters": [{"name": "x", "cluster": {"certificate-authority": "ca.crt"}}],
        "users": [
            {"name": "x", "user": {"token": "t"}},
            {"name": "other", "user": {"token": "of another cluster"}},
        ],
        **_CURRENT,
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    made = yaml.safe_load(complete(path))
    ca = {"certificate-authority-data": base64.b64encode(b"CA").decode()}
    assert made["clusters"][0]["cluster"] == ca
    assert [each["user"] for each in made["users"]] == [{"token": "t"}]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"clusters": []}, "is not a kubeconfig"),
        (
            {
                "clusters": [{"name": "x", "cluster": {}}],
                "users": [{"name": "x", "user": {"exec": {"command": "aws"}}}],
                **_CURRENT,
            },
            "a token or a certificate",
        ),
    ],
)
def test_a_kubeconfig_that_cannot_be_self_contained_is_rejected(
    tmp_path: Path, content: dict[str, object], words: str
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(InvalidInput, match=words):
        complete(path)
