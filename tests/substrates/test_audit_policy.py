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


def level(policy: dict[str, Any], user: str, verb: str, group: str, resource: str) -> str:
    """The first rule that matches decides, as the API server has it."""
    for rule in policy["rules"]:
        named = rule.get("resources", [{"group": group, "resources": [resource]}])
        if (
            user in rule.get("users", [user])
            and verb in rule.get("verbs", [verb])
            and any(group == each["group"] and resource in each["resources"] for each in named)
        ):
            return str(rule["level"])
    raise AssertionError("no rule matches")


@pytest.mark.parametrize(
    ("verb", "group", "resource", "expected"),
    [
        ("create", "", "pods", "RequestResponse"),
        ("create", "", "pods/binding", "Metadata"),
        ("delete", "", "pods", "Metadata"),
        ("create", "", "pods/eviction", "Metadata"),
        ("create", "", "nodes", "Metadata"),
        ("delete", "", "nodes", "Metadata"),
        ("patch", "", "nodes/status", "Metadata"),
        ("create", "bigfleet.lucy.sh", "capacityrequests", "Metadata"),
        ("patch", "bigfleet.lucy.sh", "capacityrequests/status", "Metadata"),
        ("patch", "", "pods/status", "None"),
        ("update", "coordination.k8s.io", "leases", "None"),
        ("list", "", "pods", "None"),
    ],
)
def test_what_the_clock_needs_is_logged_and_nothing_else(
    policy: dict[str, Any], verb: str, group: str, resource: str, expected: str
) -> None:
    assert level(policy, "anyone", verb, group, resource) == expected


def test_the_proof_that_a_cluster_works_leaves_no_line(policy: dict[str, Any]) -> None:
    assert level(policy, "substrate-check", "create", "", "nodes") == "None"


def test_a_line_is_never_dropped_nor_moved_to_another_file() -> None:
    """Blocking mode, and no rotation by size, number or age."""
    given = dict(flag.split("=") for flag in flags(Path("policy"), Path("log")))
    assert given["--audit-log-mode"] == "blocking"
    assert int(given["--audit-log-maxsize"]) >= 1_000_000
    assert given["--audit-log-maxage"] == given["--audit-log-maxbackup"] == "0"
