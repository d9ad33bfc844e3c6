"""Offerings, bootstrap data and Cluster API's objects from and to BigFleet's machines."""

from __future__ import annotations

import base64
import json
from copy import deepcopy
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from bigfleet.kube.client import ApiError
from bigfleet.model.errors import InvalidInput
from bigfleet.model.machine import MachineState
from bigfleet.services.provider.capi import catalog, saved
from bigfleet.services.provider.capi.objects import MachineView, explain, machine_of
from bigfleet.services.provider.capi.placeholders import facts_of, filled
from bigfleet.services.provider.capi.saved import ConfigMap, Saved
from bigfleet.services.provider.fencing import FencingToken
from bigfleet.services.provider.lifecycle import Record
from tests.services.provider.capi_rig import ELASTIC, OWN, offerings

LABELS = {"bigfleet.lucy.sh/machine": OWN, "team": "a"}
BLOB = {"apiServer": "https://east:6443", "caPem": "CA", "token": "t", "labels": LABELS}


def changed(*path: str | int, to: Any) -> dict[str, Any]:
    """The example's offerings with one value changed."""
    content = deepcopy(offerings())
    at: Any = content
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = to
    return content


def test_the_example_offers_what_can_be_bought_and_what_is_there() -> None:
    found = catalog.parse(offerings(), "example")
    machines = {machine.id: machine for machine in found.machines}
    assert len(machines) == 20 + 16 + 1
    assert (machines[ELASTIC].state, machines[ELASTIC].host) == (MachineState.SPECULATIVE, "")
    assert (machines[OWN].state, machines[OWN].host) == (MachineState.IDLE, OWN)
    assert machines[ELASTIC].allocatable["cpu"] == 1930 < machines[ELASTIC].resources["cpu"]
    assert found.clusters["west"].name == "west"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ([], "Expected `object`"),
        (changed("offerings", 0, "count", to=0), r"offerings\[0\]\.count"),
        (changed("offerings", 0, "prize", to=1), "unknown field `prize`"),
        (changed("offerings", 0, "name", to="rack1"), "rack1.*is there twice"),
        (changed("offerings", 0, "name", to="x" * 40), "is no name of a machine"),
        (changed("offerings", 0, "resources", "cpu", to="2x"), "m6i-large-a: resources: cpu"),
        (changed("offerings", 0, "allocatable", "cpu", to="3"), "cpu.*more than there is"),
        (changed("offerings", 0, "template", "kind", to="AWSMachine"), "template.kind"),
        (changed("clusters", 1, "bootstrap_secret", to=""), "west.*needs one of"),
        (changed("clusters", 0, "bootstrap_secret", to="s"), "east.*needs one of"),
        (changed("clusters", 1, "id", to="east"), "east.*is there twice"),
    ],
)
def test_invalid_offerings_are_rejected_with_the_entry_and_the_field(
    content: Any, told: str
) -> None:
    with pytest.raises(InvalidInput, match=told):
        catalog.parse(content, "example")


@pytest.mark.parametrize("machine_id", ["rack1", "rack1-", "rack1-01", "rack1-x", "-1", "other-1"])
def test_what_is_no_numbered_machine_of_an_offering_has_none(machine_id: str) -> None:
    assert catalog.parse(offerings(), "example").machine(machine_id) is None


def own(**fields: Any) -> Record:
    """The record of the first host of one's own."""
    machine = catalog.parse(offerings(), "example").machine(OWN)
    assert machine is not None
    return Record(replace(machine, **fields), operations_started=3)


def test_bootstrap_data_tells_a_machine_its_name_labels_and_taints() -> None:
    """Only labels that a kubelet may set: it would not start with others."""
    labels = {"node-role.kubernetes.io/worker": "", **own().machine.labels}
    facts = facts_of(replace(own(cluster="east").machine, labels=labels), json.dumps(BLOB).encode())
    given = {"a": ["{{bigfleet.machine}} of {{ bigfleet.cluster }}", 7, None], "b": "{{ds.meta}}"}
    assert filled(given, facts, "x") == {"a": [f"{OWN} of east", 7, None], "b": "{{ds.meta}}"}
    assert facts["taints"] == "example.com/own:NoSchedule"
    assert facts["labels"].split(",") == [
        "bigfleet.lucy.sh/capacity-type=bare-metal",
        f"bigfleet.lucy.sh/machine={OWN}",
        "node.kubernetes.io/instance-type=r650",
        "team=a",
        "topology.bigfleet/rack=dc1-r1",
        "topology.kubernetes.io/zone=dc1",
    ]
    assert json.loads(base64.b64decode(facts["blobBase64"])) == BLOB
    assert (facts["apiServer"], facts["token"]) == ("https://east:6443", "t")


def test_an_unknown_placeholder_is_named_with_those_that_there_are() -> None:
    """Also one that only an operator's blob would fill."""
    facts = facts_of(own().machine, b"no JSON")
    with pytest.raises(InvalidInput, match=r"\{\{bigfleet.token\}\}.*is not one of blobBase64"):
        filled("{{bigfleet.token}}", facts, "x")


@pytest.mark.parametrize("state", MachineState)
def test_a_record_comes_back_from_its_config_map_as_it_was(state: MachineState) -> None:
    """With the fencing tokens of each shard."""
    metadata = {"unknown/☃": 'a"\\\n\t\0b', "empty": ""}
    record = own(state=state, cluster="east", last_error="no\nluck", shard_metadata=metadata)
    record = replace(record, due_unix_seconds=7.5, grace_ends_unix_seconds=9.5)
    before = Saved(record, {"s": FencingToken(2, 9)}, "17")
    body = msgspec.json.encode(saved.to_config_map(before, "p"))
    found = msgspec.json.decode(body, type=ConfigMap)
    assert saved.from_config_map(found, own().machine) == before


def test_a_config_map_that_is_no_record_is_named() -> None:
    found = ConfigMap(saved.ConfigMapMeta("bigfleet-p-m"), {"record": "{"})
    with pytest.raises(InvalidInput, match="ConfigMap bigfleet-p-m"):
        saved.from_config_map(found, own().machine)


def test_a_machine_names_what_it_is_made_of_and_carries_its_labels() -> None:
    """Cluster API copies some of them to the Node."""
    offered = catalog.parse(offerings(), "example")
    made = machine_of(own(), offered.offerings["rack1"], offered.clusters["west"], "p")
    assert made["spec"]["bootstrap"] == {"dataSecretName": f"bigfleet-bootstrap-{OWN}"}
    assert made["spec"]["infrastructureRef"] == {
        "apiGroup": "infrastructure.cluster.x-k8s.io",
        "kind": "Metal3Machine",
        "name": OWN,
    }
    assert "version" not in made["spec"]
    assert made["metadata"]["labels"]["topology.bigfleet/rack"] == "dc1-r1"
    assert made["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] == "west"


def view(phase: str, node: str = "", **conditions: tuple[str, str, str]) -> MachineView:
    """A Machine with conditions: status, reason and message."""
    listed = [
        {"type": kind, "status": status, "reason": reason, "message": message}
        for kind, (status, reason, message) in conditions.items()
    ]
    status = {"phase": phase, "conditions": listed, "nodeRef": {"name": node}}
    return msgspec.convert({"metadata": {"name": OWN}, "status": status}, MachineView)


def test_a_machine_is_ready_when_its_node_is() -> None:
    """Not when it runs: pods are counted on the Node."""
    assert not view("Running", OWN, NodeReady=("False", "NotReady", "")).ready
    assert not view("Running", OWN).ready
    assert view("Running", OWN, NodeReady=("True", "Ready", "")).ready


def test_what_a_machine_waits_for_is_told_in_cluster_apis_words() -> None:
    waits = ("False", "NotReady", "* no host\n  matches")
    found = view("Provisioning", InfrastructureReady=waits, Paused=("False", "No", "not paused"))
    assert found.story == "Machine in phase Provisioning; InfrastructureReady: * no host matches"
    assert not found.failure


def test_infrastructure_that_is_gone_fails_the_machine() -> None:
    gone = ("False", "Deleted", "it was deleted while the Machine still exists")
    assert "infrastructure is gone" in view("Running", OWN, InfrastructureReady=gone).failure
    assert view("Failed").failure == "Machine in phase Failed"


@pytest.mark.parametrize(
    ("status", "helps"),
    [
        (401, "renew it"),
        (403, "give the provider the Role"),
        (404, "apply it"),
        (409, "somebody else"),
        (410, "no longer has"),
        (422, "correct the template"),
        (500, "HTTP status 500"),
    ],
)
def test_an_error_of_the_api_server_is_told_with_what_helps(status: int, helps: str) -> None:
    told = explain(ApiError("POST /x", status, "Reason", "it is so"), "create Machine m")
    assert told.startswith("cannot create Machine m: it is so (")
    assert helps in told
