"""`bigfleet why`: what a live shard says about needs, machines and pods."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bigfleet.adapters.provider.memory import MemoryProvider
from bigfleet.commands import shard_queries, shard_text
from bigfleet.commands.pod import PodFacts, read_pod
from bigfleet.kube.client import KubeClient
from bigfleet.model.errors import BigFleetError, InvalidInput, Unavailable, UnknownObject
from bigfleet.model.group import PodGroup
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Need, Operator, Requirement, profile, sizes_of_aggregate
from tests.support.shard_rig import CPU_PER_MACHINE, cycles, machine, need, shard
from tests.support.waiting import eventually

_S = MachineState
RACK = "topology.bigfleet/rack"


def gang(machines: float, name: str) -> Need:
    """So much CPU in one rack."""
    need_profile = profile((Requirement(RACK, Operator.SAME),), (), 0, 1, 1)
    cpu = int(machines * CPU_PER_MACHINE)
    sizes = sizes_of_aggregate({"cpu": cpu}, {"cpu": min(cpu, CPU_PER_MACHINE)})
    return Need(need_profile, sizes, PodGroup(name))


async def test_a_served_need_shows_its_machines_and_their_cost(tmp_path: Path) -> None:
    """Which machine, in what state, at which effective cost, and what it holds of the need."""
    spot = machine("m-1", price_per_hour=0.25, interruption_probability=0.5)
    dear = replace(need(), profile=profile(need().profile.requirements, (), 0, 4, 1))
    async with shard(MemoryProvider([spot], auto_finish=True), tmp_path) as rig:
        operator = await rig.operator()
        await operator.roll_up(dear)
        await operator.receives_state("m-1", _S.CONFIGURED)
        said = await shard_queries.ask(rig.address, shard_queries.need_query("east"))
    (view,) = said.data["needs"]
    assert view["satisfied"]
    (counted,) = view["counted"]
    assert counted["machine_id"] == "m-1"
    assert counted["cost_per_hour"] == 0.25 + 0.5 * 2.0
    assert counted["holds"] == {"resources": {"cpu": "4"}}
    assert "1 x m6i.xlarge in a" in said.as_text()
    assert "Demand is satisfied" in said.as_text()


async def test_a_short_need_shows_what_is_missing_and_why(tmp_path: Path) -> None:
    """The deficit, since when, the reason, and which requirement nobody meets."""
    async with shard(MemoryProvider([machine("m-1")]), tmp_path) as rig:
        operator = await rig.operator()
        await operator.roll_up(need(3), need(zone="nowhere"))
        await cycles(rig, 3)
        said = await shard_queries.ask(rig.address, shard_queries.need_query("east"))
        nowhere = need(zone="nowhere").profile.fingerprint
        about_one = await shard_queries.ask(
            rig.address, shard_queries.need_query(f"east/{nowhere[:6]}")
        )
    by_name = {view["profile_fingerprint"]: view for view in said.data["needs"]}
    crowded = by_name[need().profile.fingerprint]
    assert crowded["residual_deficit"] == {"resources": {"cpu": "8"}}
    assert crowded["unmet_reason"] == "PRIORITY_STARVED"
    assert crowded["age_cycles_unmet"] >= 1
    assert [v["unmet_reason"] for v in about_one.data["needs"]] == ["NO_MATCHING_SUPPLY"]
    assert "topology.kubernetes.io/zone IN (nowhere): 0 machines." in about_one.as_text()
    assert "1 pod of cpu 4: no machine of the fleet can hold one." in about_one.as_text()


async def test_a_gang_is_found_by_its_own_name(tmp_path: Path) -> None:
    """Small gangs are served as one need of all of them, large ones alone; both are found."""
    large, small = gang(3, "large"), gang(0.5, "small")
    async with shard(MemoryProvider([machine("m-1"), machine("m-2")]), tmp_path) as rig:
        operator = await rig.operator()
        await operator.roll_up(large, small, gang(0.5, "other"))
        await cycles(rig, 2)
        name = f"east/{large.profile.fingerprint}"
        of_large = await shard_queries.ask(rig.address, shard_queries.need_query(f"{name}/large"))
        of_small = await shard_queries.ask(rig.address, shard_queries.need_query(f"{name}/small"))
    (alone,), (folded,) = of_large.data["needs"], of_small.data["needs"]
    assert alone["unmet_reason"] == "TOPOLOGY_UNSATISFIABLE"
    assert [each["domain"] for each in alone["same_candidates"]] == ["rack-1"]
    assert folded["need"]["aggregate_resources"] == {"cpu": "4"}
    assert "It folds gangs that fit on one machine each" in of_small.as_text()


async def test_a_machine_tells_its_purpose_and_its_story(tmp_path: Path) -> None:
    """State, cluster, the need that counts it, and every step it took; strangers are named."""
    provider = MemoryProvider([machine("m-1")], auto_finish=True)
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        await operator.roll_up(need(priority=7))
        await operator.receives_state("m-1", _S.CONFIGURED)
        await cycles(rig, 1)
        said = await shard_queries.ask(rig.address, shard_queries.machine_query("m-1"))
        with pytest.raises(UnknownObject, match="machine 'm-9' is unknown to"):
            await shard_queries.ask(rig.address, shard_queries.machine_query("m-9"))
    view = said.data["machine"]
    assert view["machine"]["state"] == "CONFIGURED"
    assert view["counted_by"]["priority"] == 7
    assert [line["event"] for line in view["story"]][:2] == ["decided", "bootstrap-requested"]
    assert "Machine m-1 is CONFIGURED in cluster east" in said.as_text()
    assert json.loads(said.as_json()) == said.data


async def test_what_cannot_be_answered_is_a_sentence(tmp_path: Path) -> None:
    """No shard, no such need, no such name for a pod: each says what is wrong."""
    with pytest.raises(Unavailable, match=r"shard at 127\.0\.0\.1:1"):
        await shard_queries.ask("127.0.0.1:1", shard_queries.machine_query("m-1"))
    with pytest.raises(InvalidInput, match="NAMESPACE/NAME"):
        shard_queries.pod_query("web-1", None, "")
    async with shard(MemoryProvider(), tmp_path) as rig:
        await eventually(lambda: rig.shard.cycle.count > 0)
        with pytest.raises(UnknownObject, match="has no need west"):
            await shard_queries.ask(rig.address, shard_queries.need_query("west"))


async def test_a_pending_pod_leads_to_its_need(tmp_path: Path) -> None:
    """Its cluster is found by the need, unless two clusters have such a need."""
    wanted = need(3, zone="nowhere")
    facts = PodFacts("default/web-1", "Pending", "", wanted.key, True, "")
    assert shard_text.pod(facts)[0] == "Pod default/web-1 is Pending, not bound to a node."
    async with shard(MemoryProvider(), tmp_path) as rig:
        for cluster in ("east", "west"):
            operator = await rig.operator(cluster)
            await operator.roll_up(wanted)
            await cycles(rig, 1)
            if cluster == "east":
                said = await shard_queries.ask(
                    rig.address, shard_queries.query_behind_pod(facts, "")
                )
                assert said.data["needs"][0]["cluster_id"] == "east"
        with pytest.raises(BigFleetError, match="choose one with --cluster"):
            await shard_queries.ask(rig.address, shard_queries.query_behind_pod(facts, ""))
        said = await shard_queries.ask(rig.address, shard_queries.query_behind_pod(facts, "west"))
        assert said.data["needs"][0]["cluster_id"] == "west"


def test_the_command_ends_with_a_sentence_not_a_traceback() -> None:
    """Exit code 1 and one line when no shard answers, 2 for a question that makes no sense."""
    command = [sys.executable, "-m", "bigfleet", "why", "--insecure", "--shard", "127.0.0.1:1"]
    silent = subprocess.run(
        [*command, "--machine", "m-1"], capture_output=True, text=True, check=False
    )
    assert (silent.returncode, silent.stdout) == (1, "")
    assert silent.stderr.splitlines()[-1].startswith("bigfleet why: shard at 127.0.0.1:1")
    senseless = subprocess.run(
        [*command, "--pod", "web"], capture_output=True, text=True, check=False
    )
    assert senseless.returncode == 2
    assert "Traceback" not in senseless.stderr


@pytest.mark.cluster
async def test_a_pod_is_read_from_its_cluster(kubeconfig: dict[str, Path]) -> None:
    """Node, phase and need of a real pod; without a request, and without a pod, that is said."""
    admin = kubeconfig["admin"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "why", "namespace": "default"},
        "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "automountServiceAccountToken": False,
        },
    }
    async with await KubeClient.from_kubeconfig(admin) as client:
        await client.create("/api/v1/namespaces/default/pods", pod)
        try:
            facts = await read_pod(admin, "default", "why")
        finally:
            await client.delete("/api/v1/namespaces/default/pods/why")
    assert (facts.node, facts.phase, facts.need) == ("", "Pending", None)
    assert "has no CapacityRequest" in facts.problem
    with pytest.raises(UnknownObject, match="no pod default/nobody"):
        await read_pod(admin, "default", "nobody")
