"""A Node has its network once the pods of the DaemonSets are there that come before it is Ready."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scenarios.network import has_network, is_due

_EVERYTHING = {"operator": "Exists"}
_NOT_READY = {"key": "node.kubernetes.io/not-ready", "operator": "Exists"}
_TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


def _node(*taints: dict[str, str], **labels: str) -> dict[str, Any]:
    passing = [
        {"key": "node.kubernetes.io/not-ready", "effect": effect}
        for effect in ("NoSchedule", "NoExecute")
    ]
    return {"metadata": {"name": "n", "labels": labels}, "spec": {"taints": [*passing, *taints]}}


def _daemon_set(uid: str, *tolerations: dict[str, str], **spec: Any) -> dict[str, Any]:
    template = {"spec": {"tolerations": list(tolerations), **spec}}
    return {"metadata": {"uid": uid}, "spec": {"template": template}}


def _pod(owner: str, **spec: str) -> dict[str, Any]:
    metadata = {"ownerReferences": [{"kind": "DaemonSet", "uid": owner}]}
    return {"metadata": metadata, "spec": spec}


def test_a_node_waits_until_a_pod_of_every_agent_is_bound_to_it() -> None:
    """A pod that is only made can still lose its room to another."""
    sets = [_daemon_set("a", _EVERYTHING), _daemon_set("b", _EVERYTHING)]
    first = _pod("a", nodeName="n")
    assert not is_due(_node(), sets, [first, _pod("b", nodeName="another")])
    assert not is_due(_node(), sets, [first, _pod("b")])
    assert is_due(_node(), sets, [first, _pod("b", nodeName="n")])
    assert is_due(_node(), [], [])


@pytest.mark.parametrize(
    ("tolerations", "comes"),
    [
        ([], False),
        ([_EVERYTHING], True),
        ([_NOT_READY], True),
        ([{**_NOT_READY, "effect": "NoSchedule"}], True),
        ([{**_NOT_READY, "effect": "NoExecute"}], False),
    ],
)
def test_a_daemon_set_that_does_not_tolerate_a_node_that_is_not_ready_is_not_waited_for(
    tolerations: list[dict[str, str]], comes: bool
) -> None:
    """Its pods are made only when the Node is Ready."""
    assert is_due(_node(), [_daemon_set("a", *tolerations)], []) is not comes
    assert is_due({**_node(), "spec": {}}, [_daemon_set("a", *tolerations)], []) is not comes


@pytest.mark.parametrize(
    ("node", "tolerations", "selector", "belongs"),
    [
        (_node(), [_EVERYTHING], {"gpu": "yes"}, False),
        (_node(gpu="yes"), [_EVERYTHING], {"gpu": "yes"}, True),
        (_node(_TAINT), [_NOT_READY], {}, False),
        (_node(_TAINT), [_EVERYTHING], {}, True),
        (_node(_TAINT), [_NOT_READY, {"key": "gpu", "operator": "Exists"}], {}, True),
        (_node(_TAINT), [_NOT_READY, {"key": "gpu", "value": "yes"}], {}, True),
        (_node(_TAINT), [_NOT_READY, {"key": "gpu", "value": "no"}], {}, False),
        (_node(_TAINT), [_NOT_READY, {"key": "ssd", "operator": "Exists"}], {}, False),
        (_node(_TAINT), [_NOT_READY, {"operator": "Exists", "effect": "NoExecute"}], {}, False),
    ],
)
def test_a_node_waits_only_for_daemon_sets_that_belong_on_it(
    node: dict[str, Any],
    tolerations: list[dict[str, str]],
    selector: dict[str, str],
    belongs: bool,
) -> None:
    daemon_set = _daemon_set("a", *tolerations, nodeSelector=selector)
    assert is_due(node, [daemon_set], []) is not belongs


def test_a_network_is_there_once_the_agent_says_that_it_is_not_unavailable() -> None:
    said = {"type": "NetworkUnavailable", "status": "False"}
    assert has_network({"status": {"conditions": [said]}})
    assert not has_network({"status": {"conditions": [{**said, "status": "True"}]}})
    assert not has_network(_node())
