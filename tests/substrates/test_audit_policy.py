from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from loaddriver.substrates.audit import flags, write_policy


@pytest.fixture
def policy(tmp_path: Path) -> dict[str, Any]:
    write_policy(tmp_path / "policy.yaml")
    written: dict[str, Any] = yaml.safe_load((tmp_path / "policy.yaml").read_text())
    return written


def level(
    policy: dict[str, Any],
    user: str,
    verb: str,
    group: str,
    resource: str,
    namespace: str = "tenant",
    user_group: str = "system:authenticated",
) -> str:
    """The first rule that matches decides, as the API server has it."""
    for rule in policy["rules"]:
        named = rule.get("resources", [{"group": group, "resources": [resource]}])
        if (
            user in rule.get("users", [user])
            and user_group in rule.get("userGroups", [user_group])
            and namespace in rule.get("namespaces", [namespace])
            and verb in rule.get("verbs", [verb])
            and any(group == each["group"] and resource in each["resources"] for each in named)
        ):
            return str(rule["level"])
    raise AssertionError("no rule matches")


@pytest.mark.parametrize(
    ("verb", "group", "resource", "expected"),
    [
        ("create", "", "pods", "RequestResponse"),
        ("create", "", "pods/binding", "Request"),
        ("delete", "", "pods", "Metadata"),
        ("create", "", "pods/eviction", "Metadata"),
        ("create", "", "nodes", "RequestResponse"),
        ("delete", "", "nodes", "Metadata"),
        ("patch", "", "nodes/status", "Request"),
        ("create", "bigfleet.lucy.sh", "capacityrequests", "Request"),
        ("patch", "bigfleet.lucy.sh", "capacityrequests", "Request"),
        ("patch", "bigfleet.lucy.sh", "capacityrequests/status", "Request"),
        ("patch", "", "pods/status", "None"),
        ("patch", "apps", "deployments/scale", "None"),
        ("update", "coordination.k8s.io", "leases", "None"),
        ("list", "", "pods", "None"),
    ],
)
def test_what_the_clock_needs_is_logged_and_nothing_else(
    policy: dict[str, Any], verb: str, group: str, resource: str, expected: str
) -> None:
    assert level(policy, "anyone", verb, group, resource) == expected


@pytest.mark.parametrize(
    ("verb", "group", "resource", "expected"),
    [
        ("create", "bigfleet.lucy.sh", "capacityrequests", "RequestResponse"),
        ("delete", "bigfleet.lucy.sh", "capacityrequests", "Metadata"),
        ("create", "apps", "deployments", "Metadata"),
        ("create", "batch", "jobs", "Metadata"),
        ("patch", "apps", "deployments/scale", "Metadata"),
        ("patch", "apps", "statefulsets/scale", "Metadata"),
        ("patch", "apps", "deployments", "None"),
        ("delete", "", "pods", "Metadata"),
        ("list", "", "pods", "None"),
    ],
)
def test_what_the_load_driver_was_promised_is_on_record(
    policy: dict[str, Any], verb: str, group: str, resource: str, expected: str
) -> None:
    """Its writes can be held against the log; its requests' labels say what they stand for."""
    assert level(policy, "load-driver", verb, group, resource) == expected


def test_the_proof_that_a_cluster_works_leaves_no_line(policy: dict[str, Any]) -> None:
    assert level(policy, "substrate-check", "create", "", "nodes") == "None"


@pytest.mark.parametrize("namespace", ["kube-system", "bigfleet-system", "scaletest-system"])
def test_pods_that_the_cluster_runs_for_itself_leave_no_line(
    policy: dict[str, Any], namespace: str
) -> None:
    """They would count as load: their creation, binding and removal."""
    for resource in ("pods", "pods/binding", "pods/eviction"):
        assert level(policy, "anyone", "create", "", resource, namespace) == "None"


def test_a_real_nodes_kubelet_leaves_no_line(policy: dict[str, Any]) -> None:
    """Its Node is no machine of the fleet; machines join under names of their own."""
    kubelet = {"user": "system:node:c1", "user_group": "system:nodes"}
    for verb, resource in (("create", "nodes"), ("patch", "nodes/status")):
        assert level(policy, verb=verb, group="", resource=resource, **kubelet) == "None"


def test_a_line_is_never_dropped_nor_moved_to_another_file() -> None:
    """Blocking mode, and no rotation by size, number or age."""
    given = dict(flag.split("=") for flag in flags(Path("policy"), Path("log")))
    assert given["--audit-log-mode"] == "blocking"
    assert int(given["--audit-log-maxsize"]) >= 1_000_000
    assert given["--audit-log-maxage"] == given["--audit-log-maxbackup"] == "0"
