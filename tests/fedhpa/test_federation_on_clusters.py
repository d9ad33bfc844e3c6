"""The federated HPA and its target on real API servers, as the seed describes their interplay."""

from __future__ import annotations

import pytest

from bigfleet.api.install import GROUP_VERSION
from bigfleet.commands import fedhpa_join
from bigfleet.commands import fedhpa_status as commands
from loaddriver.substrates.base import Cluster
from tests.support.fedhpa_fleet import (
    Fleet,
    autoscaler,
    autoscalers,
    deployment,
    deployments,
    get,
    missing,
    nodes,
    place,
    stays,
)
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster


async def _marks(federated: Fleet, where: str) -> dict[str, str]:
    found = await get(federated.host, f"{deployments(where)}/web")
    marks: dict[str, str] = found["metadata"].get("annotations", {})
    return {key.partition("/")[2]: value for key, value in marks.items()}


async def test_each_member_gets_its_part_and_the_target_with_one_replica(
    federated: Fleet,
) -> None:
    async with place(federated, "first-split") as where, federated.federation():
        await federated.host.create(deployments(where), deployment(replicas=6))
        await federated.until_replicas(where, {"east": 3, "west": 3})
        await federated.host.create(autoscalers(where), autoscaler(3, 11))
        await federated.until_shares(where, {"east": (2, 6), "west": (1, 5)})
        hpa = await federated.hpa("east", where)
        assert hpa is not None
        assert hpa["spec"]["scaleTargetRef"] == {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": "web",
        }
        marks = await _marks(federated, where)
        assert marks == {"autoscaled-by": "web", "clusters": "east,west"}
        await federated.until_condition(where, "BoundsApplied", "True")
        assert await federated.replicas(where) == {"east": 3, "west": 3}


async def test_the_autoscaler_may_come_before_its_target(federated: Fleet) -> None:
    async with place(federated, "hpa-first") as where, federated.federation():
        await federated.host.create(autoscalers(where), autoscaler(2, 10))
        await federated.until_shares(where, {"east": (1, 5), "west": (1, 5)})
        missing_target = await federated.until_condition(where, "TargetFound", "False")
        assert "FederatedDeployment web" in missing_target["message"]
        await federated.host.create(deployments(where), deployment(replicas=6))
        await federated.until_replicas(where, {"east": 1, "west": 1})
        await federated.until_condition(where, "TargetFound", "True")


async def test_the_list_overrides_the_workloads_own_preferences_and_its_status_says_so(
    federated: Fleet,
) -> None:
    """Kept where chosen, created with one, deleted where not chosen, once enough is ready."""
    async with (
        place(federated, "overrides") as where,
        nodes(federated, east=1, west=1),
        federated.federation(),
    ):
        body = deployment(replicas=4, clusters={"names": ["west"]})
        await federated.host.create(deployments(where), body)
        await federated.until_replicas(where, {"west": 4})
        names = {"names": ["east", "west"]}
        body = autoscaler(
            1, 10, clusters=names, preferences=[{"cluster": "west", "maxReplicas": 0}]
        )
        await federated.host.create(autoscalers(where), body)
        await federated.until_shares(where, {"east": (1, 10)})
        await federated.until_replicas(where, {"east": 1})

        async def told() -> bool:
            found = await get(federated.host, f"{deployments(where)}/web")
            conditions = found.get("status", {}).get("conditions", [])
            said = {each["type"]: (each["status"], each["message"]) for each in conditions}
            status, message = said.get("Autoscaled", ("", ""))
            return status == "True" and "are ignored" in message

        await eventually(told, "the status that its own preferences are ignored")


async def test_replicas_are_left_alone_through_a_rolling_update(federated: Fleet) -> None:
    async with place(federated, "rolling") as where, federated.federation():
        await federated.host.create(deployments(where), deployment())
        await federated.host.create(autoscalers(where), autoscaler(2, 10))
        await federated.until_replicas(where, {"east": 1, "west": 1})
        await federated.scale("east", where, 4)
        changed = deployment("two")["spec"]
        await federated.host.patch(f"{deployments(where)}/web", {"spec": changed})

        async def updated() -> bool:
            parts = [await federated.part(member, where) for member in federated.members]
            pods = [part["spec"]["template"]["spec"] for part in parts if part]
            return [pod["containers"][0]["image"] for pod in pods] == ["two", "two"]

        await eventually(updated, "the new image in both members")
        await stays(
            lambda: federated.replicas(where), {"east": 4, "west": 1}, 3, "replicas were touched"
        )


async def test_recreate_is_handed_to_the_members_and_replicas_stay(federated: Fleet) -> None:
    """Also when the update is what changes the strategy, beside which nothing may be left over."""
    async with place(federated, "recreate") as where, federated.federation():
        body = deployment()
        await federated.host.create(deployments(where), body)
        await federated.host.create(autoscalers(where), autoscaler(1, 10))
        await federated.until_shares(where, {"east": (1, 10)})
        await federated.until_replicas(where, {"east": 1})
        await federated.scale("east", where, 3)
        body["spec"]["template"]["spec"]["strategy"] = {"type": "Recreate"}
        body["spec"]["template"]["spec"]["template"]["spec"]["containers"][0]["image"] = "two"
        await federated.host.patch(f"{deployments(where)}/web", {"spec": body["spec"]})

        async def updated() -> bool:
            part = await federated.part("east", where) or {}
            pod = part["spec"]["template"]["spec"]["containers"][0]
            return bool(pod["image"] == "two" and part["spec"]["strategy"]["type"] == "Recreate")

        await eventually(updated, "the new image")
        assert await federated.replicas(where) == {"east": 3}


async def test_a_deleted_target_or_hpa_is_restored(federated: Fleet) -> None:
    async with place(federated, "restored") as where, federated.federation():
        await federated.host.create(deployments(where), deployment())
        await federated.host.create(autoscalers(where), autoscaler(2, 10))
        await federated.until_replicas(where, {"east": 1, "west": 1})
        await federated.until_condition(where, "BoundsApplied", "True")
        east = federated.members["east"]
        await east.delete(f"/apis/apps/v1/namespaces/{where}/deployments/web")
        before = await federated.hpa("east", where)
        await east.delete(f"/apis/autoscaling/v2/namespaces/{where}/horizontalpodautoscalers/web")

        async def made_again() -> bool:
            hpa = await federated.hpa("east", where)
            uid = before["metadata"]["uid"] if before else ""
            return hpa is not None and hpa["metadata"]["uid"] != uid

        await eventually(made_again, "a new HPA")
        await federated.until_shares(where, {"east": (1, 5), "west": (1, 5)})
        await federated.until_replicas(where, {"east": 1, "west": 1})


async def test_changes_in_a_member_are_reverted(federated: Fleet) -> None:
    async with place(federated, "drift") as where, federated.federation():
        await federated.host.create(deployments(where), deployment())
        await federated.host.create(autoscalers(where), autoscaler(2, 10))
        await federated.until_shares(where, {"east": (1, 5), "west": (1, 5)})
        await federated.until_replicas(where, {"east": 1, "west": 1})
        path = f"/apis/autoscaling/v2/namespaces/{where}/horizontalpodautoscalers/web"
        await federated.members["east"].patch(path, {"spec": {"maxReplicas": 50}})
        await federated.until_condition(where, "BoundsApplied", "True")

        async def exact() -> bool:
            return sum(share[1] for share in (await federated.shares(where)).values()) == 10

        await eventually(exact, "the sum of max")


async def test_max_moves_to_the_member_at_its_limit_and_the_status_says_why(
    federated: Fleet,
) -> None:
    async with (
        place(federated, "moves") as where,
        nodes(federated, east=2, west=1),
        federated.federation(),
    ):
        await federated.host.create(deployments(where), deployment())
        await federated.host.create(autoscalers(where), autoscaler(2, 20))
        await federated.until_shares(where, {"east": (1, 10), "west": (1, 10)})
        await federated.scale("east", where, 10)
        await federated.hpa_says("west", where, 1, 1)
        await federated.hpa_says("east", where, 10, 10, limited=True)
        await federated.until_shares(where, {"east": (1, 13), "west": (1, 7)})

        async def in_status() -> bool:
            lines = (await federated.autoscaler(where) or {}).get("status", {}).get("clusters", [])
            moves = [line.get("lastMove", {}) for line in lines if line["name"] == "east"]
            said = [(move.get("reason"), move.get("change")) for move in moves]
            return said == [("at its limit", "min 1, max 10 -> min 1, max 13")]

        async def as_event() -> bool:
            events = await get(federated.host, f"/api/v1/namespaces/{where}/events")
            return any("at its limit" in event["message"] for event in events["items"])

        await eventually(in_status, "the move and its reason in the status")
        await eventually(as_event, "an Event that says why")


async def test_pods_without_a_node_make_a_further_member_open(federated: Fleet) -> None:
    """Use case 3 with min = 1: the preferred cluster has no node for more."""
    async with (
        place(federated, "spill") as where,
        nodes(federated, east=1, west=1),
        federated.federation(),
    ):
        await federated.host.create(deployments(where), deployment())
        names = {"names": ["east", "west"]}
        await federated.host.create(autoscalers(where), autoscaler(1, 20, clusters=names))
        await federated.until_shares(where, {"east": (1, 20)})
        await federated.until_replicas(where, {"east": 1})
        await federated.scale("east", where, 12)  # of which the node takes 8
        await federated.hpa_says("east", where, 12, 12)
        await federated.until_shares(where, {"east": (1, 8), "west": (1, 12)})
        await federated.until_replicas(where, {"east": 12, "west": 1})


async def test_when_the_autoscaler_is_deleted_the_workloads_own_replicas_count_again(
    federated: Fleet,
) -> None:
    """What runs stays; nothing jumps back to what was written before."""
    async with place(federated, "back") as where, federated.federation():
        await federated.host.create(deployments(where), deployment(replicas=2))
        await federated.host.create(autoscalers(where), autoscaler(2, 10))
        await federated.until_shares(where, {"east": (1, 5), "west": (1, 5)})
        await federated.until_replicas(where, {"east": 1, "west": 1})
        await federated.scale("east", where, 4)
        path = f"{autoscalers(where)}/web"
        await federated.host.delete(path)
        await eventually(lambda: missing(federated.host, path), "the autoscaler to be gone")
        assert await federated.shares(where) == {}
        assert await _marks(federated, where) == {}
        await stays(lambda: federated.replicas(where), {"east": 4, "west": 1}, 2, "replicas jumped")
        await federated.host.patch(f"{deployments(where)}/web/scale", {"spec": {"replicas": 7}})
        await federated.until_replicas(where, {"east": 4, "west": 3})


async def test_unmanaged_objects_in_a_member_are_left_alone_and_named(
    federated: Fleet,
) -> None:
    """Neither adopted nor deleted nor scaled; the other member has all meanwhile."""
    async with place(federated, "strangers") as where, federated.federation():
        theirs = deployment("theirs")["spec"]["template"]
        body = {"metadata": {"name": "web"}, "spec": {**theirs["spec"], "replicas": 3}}
        path = f"/apis/apps/v1/namespaces/{where}/deployments"
        await federated.members["east"].create(path, body)
        await federated.host.create(deployments(where), deployment())
        await federated.host.create(autoscalers(where), autoscaler(2, 10))
        await federated.until_shares(where, {"west": (2, 10)})
        told = await federated.until_condition(where, "BoundsApplied", "False")
        assert f"cluster east: Deployment {where}/web" in told["message"]
        await federated.until_replicas(where, {"east": 3, "west": 1})
        await federated.host.delete(f"{autoscalers(where)}/web")
        await federated.host.delete(f"{deployments(where)}/web")
        await eventually(lambda: missing(federated.host, f"{deployments(where)}/web"), "its end")
        part = await federated.part("east", where) or {}
        assert part["spec"]["template"]["spec"]["containers"][0]["image"] == "theirs"


async def test_a_target_has_one_autoscaler_and_the_second_is_not_accepted(federated: Fleet) -> None:
    async with place(federated, "two-of-them") as where, federated.federation():
        await federated.host.create(deployments(where), deployment())
        await federated.host.create(autoscalers(where), autoscaler(2, 10))
        await federated.until_shares(where, {"east": (1, 5), "west": (1, 5)})
        await federated.host.create(autoscalers(where), autoscaler(2, 10, "second"))
        refused = await federated.until_condition(where, "Accepted", "False", "second")
        assert "already scaled by FederatedHorizontalPodAutoscaler web" in refused["message"]
        assert await federated.shares(where, "second") == {}


async def test_a_bad_annotation_changes_nothing_and_is_named(federated: Fleet) -> None:
    async with place(federated, "bad-annotation") as where, federated.federation():
        body = autoscaler(2, 10)
        body["metadata"]["annotations"] = {"bigfleet.lucy.sh/hpa-preferences": "{"}
        await federated.host.create(autoscalers(where), body)
        refused = await federated.until_condition(where, "Accepted", "False")
        assert "bigfleet.lucy.sh/hpa-preferences" in refused["message"]
        assert await federated.shares(where) == {}


async def test_a_deleted_workload_leaves_no_parts_behind(federated: Fleet) -> None:
    async with place(federated, "deleted") as where, federated.federation():
        await federated.host.create(deployments(where), deployment(replicas=2))
        await federated.until_replicas(where, {"east": 1, "west": 1})
        path = f"{deployments(where)}/web"
        await federated.host.delete(path)
        await eventually(lambda: missing(federated.host, path), "it to be gone")
        await federated.until_replicas(where, {})


async def test_a_federated_replica_set_is_scaled_in_the_same_way(federated: Fleet) -> None:
    async with place(federated, "replica-set") as where, federated.federation():
        body = {**deployment(), "kind": "FederatedReplicaSet"}
        path = f"{GROUP_VERSION}/namespaces/{where}/federatedreplicasets"
        await federated.host.create(path, body)
        ref = {"kind": "FederatedReplicaSet", "name": "web"}
        await federated.host.create(autoscalers(where), autoscaler(2, 10, scaleTargetRef=ref))
        await federated.until_shares(where, {"east": (1, 5), "west": (1, 5)})
        hpa = await federated.hpa("west", where)
        assert hpa is not None
        assert hpa["spec"]["scaleTargetRef"]["kind"] == "ReplicaSet"
        sets = f"/apis/apps/v1/namespaces/{where}/replicasets/web"

        async def made() -> bool:
            found = [await get(client, sets) for client in federated.members.values()]
            return [each and each["spec"]["replicas"] for each in found] == [1, 1]

        await eventually(made, "a ReplicaSet with one replica in each member")


async def test_a_person_joins_a_member_and_is_shown_what_each_has(
    federated: Fleet, federated_clusters: dict[str, Cluster]
) -> None:
    admin = federated_clusters["host"].kubeconfigs["admin"]
    await federated.leave("west")
    member = federated_clusters["west"].kubeconfigs["bigfleet-fedhpa"]
    said = await fedhpa_join.join(admin, "west", member, ["zone=west"])
    assert said == f"west is a member of the federation at {federated.host.server}"
    async with place(federated, "by-hand") as where, federated.federation():
        selector = {"selector": {"matchLabels": {"zone": "west"}}}
        await federated.host.create(autoscalers(where), autoscaler(2, 10, clusters=selector))
        await federated.until_shares(where, {"west": (2, 10)})
        await federated.until_condition(where, "BoundsApplied", "True")
        shown = (await commands.status(admin, f"{where}/web", as_json=False)).splitlines()
        row = next(line.split() for line in shown if line.startswith("  west "))
        assert row[:4] == ["west", "NotScaling", "2", "10"]
        assert any("TargetFound is False" in line for line in shown)
