"""In clusters of other people the load stays in namespaces of our own and on our own Nodes."""

from __future__ import annotations

import msgspec
import pytest

from loaddriver.plan.confined import confined
from loaddriver.plan.make import make_plan
from loaddriver.plan.records import ChurnEvent, CreateEvent
from loaddriver.profile.loading import load_profile
from loaddriver.substrates.existing.objects import FLEET, MANAGED, OWN_NAMESPACE
from tests.run.run_rig import PROFILES

PLANS = {
    name: make_plan(load_profile(name, PROFILES, ["podsPerCluster=200"] if name == "smoke" else []))
    for name in ("smoke", "mixed-50")
}


@pytest.mark.parametrize("name", PLANS)
def test_every_namespace_is_ours_and_everything_without_owner_is_labelled(name: str) -> None:
    plan = confined(PLANS[name], fleet_nodes=True)
    made = [msgspec.json.decode(e.body) for e in plan.events if isinstance(e, CreateEvent)]
    namespaces = {each["metadata"]["name"] for each in made if each["kind"] == "Namespace"}
    used = {each["metadata"].get("namespace", OWN_NAMESPACE) for each in made}
    assert used <= namespaces | {OWN_NAMESPACE}
    assert all(each.startswith("scaletest-") for each in namespaces)
    for each in made:
        if "namespace" not in each["metadata"]:
            assert each["metadata"]["labels"][MANAGED[0]] == MANAGED[1], each["kind"]
    assert {each.namespace for each in plan.workloads} <= namespaces
    assert {e.namespace for e in plan.events if isinstance(e, ChurnEvent)} <= namespaces
    assert not any("/namespaces/tenant-" in getattr(event, "path", "") for event in plan.events)


@pytest.mark.parametrize("fleet_nodes", [True, False])
def test_pods_are_kept_on_our_nodes_only_if_there_are_any(fleet_nodes: bool) -> None:
    plan = confined(PLANS["mixed-50"], fleet_nodes=fleet_nodes)
    for event in plan.events:
        body = msgspec.json.decode(event.body) if isinstance(event, CreateEvent) else {}
        if "template" in body.get("spec", {}):
            spec = body["spec"]["template"]["spec"]
            assert ((spec.get("nodeSelector") or {}).get(FLEET[0]) == FLEET[1]) is fleet_nodes


def test_times_and_names_stay_as_they_are() -> None:
    """So that a run there is comparable with one on clusters of its own."""
    plan, before = confined(PLANS["smoke"], fleet_nodes=True), PLANS["smoke"]
    assert [(e.id, e.step, e.offset_seconds) for e in plan.events] == [
        (e.id, e.step, e.offset_seconds) for e in before.events
    ]
    assert (plan.levels, plan.steps, plan.header) == (before.levels, before.steps, before.header)
