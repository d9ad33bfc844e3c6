"""With the members' own HPA controllers: load moves replicas, and limits follow it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from controlplane.request import Binaries
from loaddriver.substrates.base import Cluster
from tests.fedhpa.hpa_rig import Load, real_hpas
from tests.support.fedhpa_fleet import (
    Fleet,
    autoscaler,
    autoscalers,
    deployment,
    deployments,
    nodes,
    place,
)
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster

AT_ONCE = {
    "stabilizationWindowSeconds": 0,
    "policies": [{"type": "Pods", "value": 100, "periodSeconds": 15}],
}
HALF: dict[str, Any] = {
    "metrics": [
        {
            "type": "Resource",
            "resource": {
                "name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": 50},
            },
        }
    ],
    "behavior": {"scaleUp": AT_ONCE, "scaleDown": AT_ONCE},
}


@pytest_asyncio.fixture
async def loads(
    federated: Fleet,
    federated_clusters: dict[str, Cluster],
    binaries: Binaries,
    tmp_path: Path,
) -> AsyncIterator[dict[str, Load]]:
    """Each member's load, which its HPA controller sees."""
    async with AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(
                real_hpas(client, federated_clusters[name], binaries, tmp_path)
            )
            for name, client in federated.members.items()
        }


async def test_each_member_follows_its_own_load_and_a_spike_gets_the_others_slack(
    federated: Fleet, loads: dict[str, Load]
) -> None:
    """Use case 1. Pods ask for one core and shall use half of it."""
    async with (
        place(federated, "real-spike") as where,
        nodes(federated, east=3, west=1),
        federated.federation(),
    ):
        await federated.host.create(deployments(where), deployment())
        await federated.host.create(autoscalers(where), autoscaler(2, 12, **HALF))
        await federated.until_shares(where, {"east": (1, 6), "west": (1, 6)})
        loads["west"].cores = 0.9  # two Pods' worth
        await federated.until_replicas(where, {"east": 1, "west": 2})
        loads["east"].cores = 4.4  # nine Pods' worth, three more than it may have
        await federated.until_replicas(where, {"east": 9, "west": 2})

        async def all_given() -> bool:
            """What is taken from one is given to the other a moment later."""
            shares = await federated.shares(where)
            return sum(share[1] for share in shares.values()) == 12 and shares["west"][1] >= 2

        await eventually(all_given, "all of max, and enough of it in the west")


async def test_members_follow_load_while_the_federation_is_down(
    federated: Fleet, loads: dict[str, Load]
) -> None:
    """Use case 2: within the last limits, up and down."""
    async with place(federated, "real-outage") as where, nodes(federated, east=1, west=1):
        async with federated.federation():
            await federated.host.create(deployments(where), deployment())
            await federated.host.create(autoscalers(where), autoscaler(2, 12, **HALF))
            await federated.until_replicas(where, {"east": 1, "west": 1})
            await federated.until_condition(where, "BoundsApplied", "True")
        federated.lines["host"].disconnect()
        loads["east"].cores = 1.9
        await federated.until_replicas(where, {"east": 4, "west": 1})
        loads["east"].cores = 0.3
        await federated.until_replicas(where, {"east": 1, "west": 1})
        federated.lines["host"].reconnect()


async def test_a_spike_that_outgrows_the_preferred_cluster_spills_over(
    federated: Fleet, loads: dict[str, Load]
) -> None:
    """Use case 3: east has nodes for eight; callers go where replicas are."""
    async with (
        place(federated, "real-spill") as where,
        nodes(federated, east=1, west=2),
        federated.federation(),
    ):
        await federated.host.create(deployments(where), deployment())
        body = autoscaler(1, 20, clusters={"names": ["east", "west"]}, **HALF)
        await federated.host.create(autoscalers(where), body)
        await federated.until_shares(where, {"east": (1, 20)})
        loads["east"].cores = 6.9  # fourteen Pods' worth
        await federated.until_shares(where, {"east": (1, 8), "west": (1, 12)})
        loads["east"].cores, loads["west"].cores = 3.9, 2.9
        await federated.until_replicas(where, {"east": 8, "west": 6})
