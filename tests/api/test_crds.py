"""What the shipped manifests promise, read as text: no cluster is needed to see it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from bigfleet.api.install import CRDS, GROUP_VERSION, MANIFESTS

_KINDS = [yaml.safe_load(path.read_text()) for path in sorted(CRDS.glob("*.yaml"))]
_MANIFESTS = [
    document
    for path in sorted(MANIFESTS.glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
]


def _named(kind: str) -> list[dict[str, Any]]:
    return [d for d in _MANIFESTS if d["kind"] == kind]


def _rules() -> Iterator[tuple[str, dict[str, Any]]]:
    for role in (*_named("ClusterRole"), *_named("Role")):
        for rule in role["rules"]:
            yield role["metadata"]["name"], rule


def test_the_four_kinds_are_there_each_in_a_file_of_its_plural() -> None:
    assert [crd["spec"]["names"]["kind"] for crd in _KINDS] == [
        "AvailableCapacity",
        "CapacityRequest",
        "DisruptionReview",
        "UpcomingNode",
    ]
    assert [crd["spec"]["names"]["plural"] for crd in _KINDS] == [
        path.stem for path in sorted(CRDS.glob("*.yaml"))
    ]


@pytest.mark.parametrize("crd", _KINDS, ids=lambda crd: crd["spec"]["names"]["kind"])
def test_each_kind_has_a_status_of_its_own_and_columns_for_people(crd: dict[str, Any]) -> None:
    [version] = crd["spec"]["versions"]
    assert f"/apis/{crd['spec']['group']}/{version['name']}" == GROUP_VERSION
    assert "status" in version["subresources"]
    assert len(version["additionalPrinterColumns"]) >= 3


@pytest.mark.parametrize("crd", _KINDS, ids=lambda crd: crd["spec"]["names"]["kind"])
def test_kinds_with_a_phase_can_be_selected_by_it(crd: dict[str, Any]) -> None:
    [version] = crd["spec"]["versions"]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
    selectable = [field["jsonPath"] for field in version.get("selectableFields", [])]
    assert selectable == ([".status.phase"] if "phase" in status.get("properties", {}) else [])


def test_only_the_pod_controller_may_watch_pods() -> None:
    watchers = {
        name for name, rule in _rules() if "pods" in rule["resources"] and "watch" in rule["verbs"]
    }
    assert watchers == {"bigfleet-pod-controller"}


def test_no_right_is_given_wholesale() -> None:
    for name, rule in _rules():
        everything = {*rule["verbs"], *rule["resources"], *rule["apiGroups"]}
        assert "*" not in everything, name
        assert not everything & {"secrets", "escalate", "bind", "impersonate"}, name


def test_what_a_policy_cannot_evaluate_is_denied() -> None:
    """Each policy is bound, and denies also where it fails."""
    policies = _named("ValidatingAdmissionPolicy")
    assert {policy["spec"]["failurePolicy"] for policy in policies} == {"Fail"}
    bindings = _named("ValidatingAdmissionPolicyBinding")
    bound = {binding["spec"]["policyName"] for binding in bindings}
    assert bound == {policy["metadata"]["name"] for policy in policies}
    assert all(binding["spec"]["validationActions"] == ["Deny"] for binding in bindings)
