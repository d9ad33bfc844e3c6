"""Pods with constraints between them get machines where they run, not where they are counted."""

from __future__ import annotations

import asyncio

from bigfleet.simulation.convergence import unserved_workloads
from bigfleet.simulation.world import World
from tests.simulation.simulation_rig import ZONE, machines, pods, run_scenario, world_spec


def test_pods_counted_where_they_do_not_fit_get_a_machine_though_their_need_is_short() -> None:
    """Two of the five pods fit in no zone. Of the other three one is counted on a machine that
    kube-scheduler has filled with other pods.
    """
    fleet = [machine for zone in "abc" for machine in machines(2, zone, zone=zone)]

    async def scenario(world: World) -> None:
        cluster = world.clusters["east"]
        cluster.apply(pods("first", 3, "4", priority=100, anti_affinity=(ZONE,)))
        await asyncio.sleep(60)
        cluster.withdraw("first")
        # Two pods on each machine, where the count has four, two and none.
        cluster.apply(pods("other", 6, priority=100))
        await asyncio.sleep(10)
        assert {len(cluster.pods_on(node)) for node in cluster.nodes} == {2}
        cluster.apply(pods("web", 5, "3", anti_affinity=(ZONE,)))
        await asyncio.sleep(300)
        web = [pod for pod in cluster.pods.values() if pod.workload.name == "web" and pod.node]
        assert {pod.node for pod in web} == {"a-001", "b-001", "c-001"}
        assert list(unserved_workloads(world, cluster)) == []

    run_scenario(world_spec(fleet, engine={"reclaim_hold_seconds": 10_000.0}), scenario)
