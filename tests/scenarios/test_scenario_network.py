"""A Node has its network once the pods of all DaemonSets exist that belong on it."""

from __future__ import annotations

from typing import Any

import pytest

from scenarios.network import has_network, is_due

_TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


def _node(*taints: dict[str, str], **labels: str) -> dict[str, Any]:
    passing = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    return {"metadata": {"name": "n", "labels": labels}, "spec": {"taints": [passing, *taints]}}


def _daemon_set(uid: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"uid": uid}, "spec": {"template": {"spec": spec}}}


def _pod(owner: str, node: str) -> dict[str, Any]:
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    required = {"nodeSelectorTerms": [{"matchFields": fields}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    metadata = {"ownerReferences": [{"kind": "DaemonSet", "uid": owner}]}
    return {"metadata": metadata, "spec": {"affinity": affinity}}


def test_a_node_waits_for_a_pod_of_every_daemon_set() -> None:
    sets = [_daemon_set("a"), _daemon_set("b")]
    assert not is_due(_node(), sets, [_pod("a", "n"), _pod("b", "another")])
    assert is_due(_node(), sets, [_pod("a", "n"), _pod("b", "n")])
    assert is_due(_node(), [], [])


@pytest.mark.parametrize(
    ("node", "spec", "belongs"),
    [
        (_node(), {"nodeSelector": {"gpu": "yes"}}, False),
        (_node(gpu="yes"), {"nodeSelector": {"gpu": "yes"}}, True),
        (_node(_TAINT), {}, False),
        (_node(_TAINT), {"tolerations": [{"operator": "Exists"}]}, True),
        (_node(_TAINT), {"tolerations": [{"key": "gpu", "operator": "Exists"}]}, True),
        (_node(_TAINT), {"tolerations": [{"key": "gpu", "value": "yes"}]}, True),
        (_node(_TAINT), {"tolerations": [{"key": "gpu", "value": "no"}]}, False),
        (_node(_TAINT), {"tolerations": [{"key": "ssd", "operator": "Exists"}]}, False),
        (_node(_TAINT), {"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]}, False),
    ],
)
def test_a_node_waits_only_for_daemon_sets_that_belong_on_it(
    node: dict[str, Any], spec: dict[str, Any], belongs: bool
) -> None:
    assert is_due(node, [_daemon_set("a", **spec)], []) is not belongs


def test_a_network_is_there_once_the_agent_says_that_it_is_not_unavailable() -> None:
    said = {"type": "NetworkUnavailable", "status": "False"}
    assert has_network({"status": {"conditions": [said]}})
    assert not has_network({"status": {"conditions": [{**said, "status": "True"}]}})
    assert not has_network(_node())
