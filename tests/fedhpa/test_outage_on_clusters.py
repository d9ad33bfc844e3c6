"""An outage of the federation, or of the way to a member, changes nothing, also afterwards."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from tests.support.fedhpa_fleet import (
    Fleet,
    autoscaler,
    autoscalers,
    deployment,
    deployments,
    nodes,
    place,
    stays,
)
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster

EVEN = {"east": (1, 5), "west": (1, 5)}


async def _even(federated: Fleet, where: str) -> None:
    await federated.host.create(deployments(where), deployment())
    await federated.host.create(autoscalers(where), autoscaler(2, 10))
    await federated.until_shares(where, EVEN)
    await federated.until_replicas(where, {"east": 1, "west": 1})
    await federated.until_condition(where, "BoundsApplied", "True")


async def test_a_member_that_is_cut_off_keeps_its_share_and_it_counts(federated: Fleet) -> None:
    async with (
        place(federated, "cut-off") as where,
        nodes(federated, east=1, west=1),
        federated.federation(),
    ):
        await _even(federated, where)
        await federated.scale("east", where, 5)
        federated.lines["west"].disconnect()
        away = await federated.until_condition(where, "ClustersReachable", "False")
        assert "west" in away["message"]
        await federated.hpa_says("east", where, 5, 5, limited=True)
        await stays(lambda: federated.shares(where), EVEN, 4, "a share that counts was given away")
        federated.lines["west"].reconnect()
        await federated.until_condition(where, "ClustersReachable", "True")
        await federated.until_condition(where, "BoundsApplied", "True")
        assert await federated.shares(where) == EVEN
        await federated.hpa_says("west", where, 1, 1)
        await federated.until_shares(where, {"east": (1, 7), "west": (1, 3)})


async def test_a_new_federation_knows_the_share_of_a_member_that_it_cannot_reach(
    federated: Fleet,
) -> None:
    async with place(federated, "restart-blind") as where, nodes(federated, east=1, west=1):
        async with federated.federation():
            await _even(federated, where)
        federated.lines["west"].disconnect()
        async with federated.federation():
            await federated.until_condition(where, "ClustersReachable", "False")
            await federated.hpa_says("east", where, 5, 5, limited=True)
            await stays(lambda: federated.shares(where), EVEN, 4, "west was taken for empty")
            federated.lines["west"].reconnect()
            await federated.until_condition(where, "ClustersReachable", "True")


async def test_without_the_federation_members_go_on_and_its_return_changes_nothing(
    federated: Fleet,
) -> None:
    """Members' HPAs and workloads are ordinary objects; what they did meanwhile stays."""
    async with place(federated, "gone") as where:
        async with federated.federation():
            await _even(federated, where)
        await federated.scale("east", where, 4)
        before = [await federated.hpa(member, where) for member in federated.members]
        async with federated.federation():
            await stays(lambda: federated.shares(where), EVEN, 3, "its return moved something")
            assert await federated.replicas(where) == {"east": 4, "west": 1}
        after = [await federated.hpa(member, where) for member in federated.members]
        versions = [
            [hpa["metadata"]["resourceVersion"] for hpa in each if hpa] for each in (before, after)
        ]
        assert versions[0] == versions[1], "an HPA was written although nothing had changed"


async def test_nothing_is_moved_while_the_host_api_server_is_down(
    federated: Fleet,
) -> None:
    """A move is recorded there first, so without it there is none."""
    async with (
        place(federated, "host-gone") as where,
        nodes(federated, east=1, west=1),
        federated.federation(),
    ):
        await _even(federated, where)
        await federated.scale("east", where, 5)
        await federated.hpa_says("west", where, 1, 1)
        federated.lines["host"].disconnect()
        await federated.hpa_says("east", where, 5, 5, limited=True)
        await stays(lambda: federated.shares(where), EVEN, 4, "moved without being written down")
        federated.lines["host"].reconnect()
        await federated.until_shares(where, {"east": (1, 7), "west": (1, 3)})


async def test_a_member_that_leaves_hands_its_share_over(federated: Fleet) -> None:
    async with place(federated, "leaves") as where, federated.federation():
        await _even(federated, where)
        await federated.leave("west")

        async def handed_over() -> bool:
            return (await federated.shares(where)).get("east") == (2, 10)

        await eventually(handed_over, "east to have all")


async def test_a_member_that_is_not_selected_any_more_is_emptied_in_order(
    federated: Fleet,
) -> None:
    """Only once enough is ready elsewhere; here nothing is ready anywhere, so it may go."""
    async with place(federated, "deselected") as where, federated.federation():
        await _even(federated, where)
        clusters = {"clusters": {"names": ["east"]}}
        await federated.host.patch(f"{autoscalers(where)}/web", {"spec": clusters})
        await federated.until_shares(where, {"east": (2, 10)})
        await federated.until_replicas(where, {"east": 1})


async def test_of_two_federations_one_decides_and_the_other_takes_over(
    federated: Fleet,
) -> None:
    async with place(federated, "two-processes") as where, AsyncExitStack() as both:
        first = AsyncExitStack()
        both.push_async_callback(first.aclose)
        await first.enter_async_context(federated.federation("first"))
        await _even(federated, where)
        await both.enter_async_context(federated.federation("second"))
        await first.aclose()
        await federated.host.patch(f"{autoscalers(where)}/web", {"spec": {"maxReplicas": 12}})
        await federated.until_shares(where, {"east": (1, 6), "west": (1, 6)})
