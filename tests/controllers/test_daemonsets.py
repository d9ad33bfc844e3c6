"""What DaemonSets take of a machine, from the objects as the API server writes them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from bigfleet.controllers.operator.daemonsets import DaemonSet, overhead, summed
from bigfleet.model.errors import InvalidInput
from bigfleet.model.need import NodeOverhead, Operator, Requirement, Taint, Toleration

_EVERYTHING = Toleration("", exists=True, value="", effect="")


def _daemon_set(cpu: str = "100m", **spec: Any) -> DaemonSet:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
    template = {"spec": {"containers": [container], **spec}}
    raw = {"metadata": {"name": "d", "namespace": "n"}, "spec": {"template": template}}
    return msgspec.json.decode(json.dumps(raw), type=DaemonSet)


def _overhead(cpu: str = "100m", **spec: Any) -> NodeOverhead:
    found = overhead(_daemon_set(cpu, **spec))
    assert found is not None
    return found


def _affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}


def test_a_daemon_takes_its_pods_requests_and_a_pod_slot() -> None:
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "50m"}}}
    found = _overhead(initContainers=[sidecar])
    assert found.amounts == (("cpu", 150), ("memory", 64 * 1024), ("pods", 1000))
    assert (found.requirements, found.alternatives) == ((), ())


def test_a_daemon_with_limits_alone_requests_its_limits() -> None:
    """The API server says so of Pods, and leaves their templates as they were written."""
    limits = {"limits": {"cpu": "500m", "memory": "1Gi"}, "requests": {"memory": "64Mi"}}
    containers = [{"name": "c", "resources": limits}]
    amounts = dict(_overhead(containers=containers).amounts)
    assert (amounts["cpu"], amounts["memory"]) == (500, 64 * 1024)


def test_a_daemon_runs_where_its_template_says() -> None:
    terms: list[dict[str, Any]] = [
        {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]},
        {"matchExpressions": [{"key": "arch", "operator": "In", "values": ["arm64"]}]},
    ]
    found = _overhead(nodeSelector={"os": "linux"}, affinity=_affinity(*terms))
    assert found.requirements == (Requirement("os", Operator.IN, ("linux",)),)
    assert found.alternatives == (
        (Requirement("arch", Operator.IN, ("arm64",)),),
        (Requirement("gpu", Operator.EXISTS),),
    )


@pytest.mark.parametrize(
    ("key", "effect"),
    [
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    ],
)
def test_a_daemon_tolerates_what_its_controller_adds(key: str, effect: str) -> None:
    taint = Taint(f"node.kubernetes.io/{key}", "", effect)
    assert any(toleration.tolerates(taint) for toleration in _overhead().tolerations)


def test_a_daemon_on_the_hosts_network_needs_no_other() -> None:
    taint = Taint("node.kubernetes.io/network-unavailable", "", "NoSchedule")
    assert not any(toleration.tolerates(taint) for toleration in _overhead().tolerations)
    on_host = _overhead(hostNetwork=True)
    assert any(toleration.tolerates(taint) for toleration in on_host.tolerations)


def test_a_daemon_that_tolerates_everything_has_one_toleration() -> None:
    found = _overhead(tolerations=[{"operator": "Exists"}, {"key": "a", "operator": "Exists"}])
    assert found.tolerations == (_EVERYTHING,)


def test_daemons_that_run_on_equal_machines_are_summed() -> None:
    first, second = _overhead("100m"), _overhead("200m")
    special = _overhead("1", nodeSelector={"gpu": "yes"})
    both = ("cpu", 300), ("memory", 128 * 1024), ("pods", 2000)
    assert {(o.requirements, o.amounts) for o in summed([first, special, second])} == {
        ((), both),
        (special.requirements, special.amounts),
    }
    assert summed([first, special, second]) == summed([second, first, special])
    assert summed([]) == ()


def test_a_daemon_for_a_node_by_name_is_on_no_machine_to_come() -> None:
    named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n-1"]}]}
    assert overhead(_daemon_set(affinity=_affinity(named))) is None
    assert overhead(_daemon_set(nodeSelector={"kubernetes.io/hostname": "n-1"})) is None


def test_a_daemon_with_invalid_requests_is_an_error_with_its_name() -> None:
    with pytest.raises(InvalidInput, match=r"daemonset.*d.*9E"):
        overhead(_daemon_set("9E"))
