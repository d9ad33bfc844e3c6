"""Room on machines that all pods share: what pods and the cluster's own agents leave."""

from __future__ import annotations

from dataclasses import replace

from loaddriver.judge.diagnosis import diagnose
from loaddriver.judge.facts import Shortfall
from loaddriver.judge.free_capacity import free_capacity_at_end
from loaddriver.plan.setup_manifests import AGENTS_NAMESPACE, DAEMON_SET_LABEL
from loaddriver.profile.instance_types import DaemonSet
from loaddriver.record.audit import Binding, PodCreation, Removal
from loaddriver.record.audit_line import ObjectMetadata
from loaddriver.record.daemon_pods import daemon_pods_at_end
from loaddriver.record.recorder import Observations
from tests.judge.fleet_rig import fleet, machine, observed
from tests.judge.judge_rig import at, facts, row

LOGS = DaemonSet(name="logs", cpu_millicores=1500, memory_mebibytes=64)
SCHEDULER = "system:kube-scheduler"


def with_agent(seen: Observations, node: str, name: str = "logs-x") -> Observations:
    """One of the agent's pods was created and bound there."""
    log = seen.audit
    assert log is not None
    meta = ObjectMetadata(name, AGENTS_NAMESPACE, f"uid-{name}", {DAEMON_SET_LABEL: "logs"})
    log.pods[meta.uid] = PodCreation(meta, at(1), "daemon-set-controller")
    log.bindings.append(Binding((AGENTS_NAMESPACE, name), meta.uid, at(2), SCHEDULER, node))
    return seen


def test_agents_are_in_the_record_until_they_are_removed() -> None:
    seen = with_agent(observed({"m1": (0, None)}), "m1")
    assert daemon_pods_at_end(seen) == {("m1", "logs"): 1}
    assert seen.audit is not None
    seen.audit.removals.append(Removal((AGENTS_NAMESPACE, "logs-x"), at(9)))
    assert not daemon_pods_at_end(seen)


def test_room_is_what_pods_and_agents_leave_of_each_node() -> None:
    """Four cores; a pod takes one, the agent one and a half: there is room for one more."""
    waiting, bound = row("w", 50, workload="web"), row("b", 0, 1, workload="db", node="m1")
    known = fleet(machine("m1"), machine("m2"), daemon_sets=(LOGS,))
    seen = observed({"m1": (0, None)})
    room = free_capacity_at_end([seen], [waiting, bound], {}, known)
    assert room.free["c0", "tiny-stateless"] == {"r1": 3}
    seen = with_agent(seen, "m1")
    room = free_capacity_at_end([seen], [waiting, bound], {}, known)
    assert room.free["c0", "tiny-stateless"] == {"r1": 1}
    assert room.ready["c0", "tiny-stateless"] == 1


def test_a_node_that_a_pod_may_not_use_has_no_room_for_it() -> None:
    needs = fleet().needs["c0", "web"]
    elsewhere = replace(needs, labels=(("topology.kubernetes.io/zone", ("b",)),))
    known = fleet(machine("m1"), needs={("c0", "web"): elsewhere})
    room = free_capacity_at_end(
        [observed({"m1": (0, None)})], [row("w", 50, workload="web")], {}, known
    )
    assert room.ready["c0", "tiny-stateless"] == 0


def test_the_diagnosis_says_how_many_shared_nodes_could_hold_the_pods() -> None:
    """And how many needs the shard calls short: on shared machines none is this archetype's."""
    known = facts(
        fleet=fleet(machine("m1")),
        shortfalls=(Shortfall("c0", (), {"cpu": "4"}), Shortfall("c1", (), {"cpu": "4"})),
    )
    seen = replace(
        observed({"m1": (0, None)}), pending={"w": "0/1 nodes are available: 1 Insufficient cpu."}
    )
    full = [row(f"b{n}", 0, 1, workload="db", node="m1") for n in range(4)]
    [said, *_] = diagnose(known, [seen], [row("w", 50, workload="web"), *full], {})
    assert said == (
        "1 tiny-stateless pod in c0 waits, the longest for 50 s; 1 ready node may hold them, with "
        "0 free places, and the shard reports that 1 need of the cluster is short; scheduler: 0/1 "
        "nodes are available: 1 Insufficient cpu."
    )
