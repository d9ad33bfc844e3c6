"""What `bigfleet fedhpa` shows, and what it makes of a kubeconfig."""

from __future__ import annotations

import base64
from pathlib import Path

import msgspec
import pytest
import yaml

from bigfleet.commands.federated import complete, lines
from bigfleet.federation.objects import Autoscaler
from bigfleet.model.errors import InvalidInput

_BODY = {
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
                "message": "they keep their shares: cloud does not answer",
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
                "placedReplicas": 10,
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


def test_each_cluster_is_a_line_with_its_last_move_and_why() -> None:
    shown = list(lines(msgspec.convert(_BODY, Autoscaler)))
    assert shown[0] == (
        "shop/web scales FederatedDeployment web between 2 and 20: 12 run, 12 are desired"
    )
    assert shown[1].split()[:4] == ["CLUSTER", "STATE", "MIN", "MAX"]
    assert "min 1, max 5 -> min 1, max 10: at its limit" in shown[2]
    assert shown[3].split()[:6] == ["cloud", "Unreachable", "1", "10", "-", "-"]


def test_without_clusters_only_the_heads_are_shown() -> None:
    bare = msgspec.convert(_BODY | {"status": {}}, Autoscaler)
    assert list(lines(bare))[1:] == [
        "  CLUSTER  STATE  MIN  MAX  CURRENT  DESIRED  PLACED  LAST MOVE"
    ]


def test_only_what_is_not_well_is_said_beneath() -> None:
    assert list(lines(msgspec.convert(_BODY, Autoscaler)))[-1] == (
        "  ClustersReachable is False: they keep their shares: cloud does not answer"
    )


def test_a_kubeconfig_takes_in_the_files_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("CA")
    content = {
        "clusters": [{"name": "x", "cluster": {"certificate-authority": "ca.crt"}}],
        "users": [{"name": "x", "user": {"token": "t"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    made = yaml.safe_load(complete(path))["clusters"][0]["cluster"]
    assert made == {"certificate-authority-data": base64.b64encode(b"CA").decode()}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"clusters": []}, "is no kubeconfig"),
        (
            {"clusters": [], "users": [{"name": "x", "user": {"exec": {"command": "aws"}}}]},
            "a token or a certificate",
        ),
    ],
)
def test_a_kubeconfig_that_cannot_travel_is_refused(
    tmp_path: Path, content: dict[str, object], words: str
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(InvalidInput, match=words):
        complete(path)
