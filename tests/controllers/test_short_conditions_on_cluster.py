"""What requests on a real API server say of demand that is short, rejected or invalid."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from bigfleet.api.need_codec import need_from_wire
from bigfleet.api.v1alpha1.shard_pb2 import DemandStatus, NeedStatus, RejectedItem, ShardMessage
from bigfleet.controllers.operator import rollup
from bigfleet.kube.client import KubeClient
from tests.controllers.operator_rig import operating, rollup_with
from tests.support.clusters import admin, fake_shard, get, namespace, request, requests_path
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster


@dataclass(frozen=True)
class ShortConditionReader:
    """Reads the condition CapacityShort of the requests at `path`, with their phases."""

    client: KubeClient
    path: str

    async def get(self, name: str) -> dict[str, str]:
        status = (await get(self.client, f"{self.path}/{name}")).get("status", {})
        conditions = {each["type"]: each for each in status.get("conditions", [])}
        return {**conditions.get("CapacityShort", {}), "phase": status.get("phase", "")}

    async def has(self, name: str, **wanted: str) -> bool:
        return (await self.get(name)).items() >= wanted.items()


async def test_a_request_has_the_condition_while_its_need_is_short(
    kubeconfig: dict[str, Path],
) -> None:
    """Beside what others say of it, and its being acknowledged takes nothing of that away."""
    others = {
        "type": "AdditionalCapacityRequested",
        "status": "False",
        "reason": "Scheduled",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    async with (
        await admin(kubeconfig) as client,
        namespace(client, "told-short") as where,
        fake_shard() as (shard, address),
        operating(kubeconfig, address),
    ):
        path = requests_path(where)
        await client.create(path, request("r"))
        [need] = (await rollup_with(shard, "1")).needs
        await client.patch(f"{path}/r/status", {"status": {"conditions": [others]}})
        said = NeedStatus(
            profile_fingerprint=need_from_wire(need, "").profile.fingerprint,
            reason="NoMatchingSupply",
            message="no machine of the fleet has it",
            sizes=need.sizes,
        )

        async def told() -> dict[str, dict[str, str]]:
            conditions = (await get(client, f"{path}/r"))["status"].get("conditions", [])
            return {condition["type"]: condition for condition in conditions}

        async def is_short(status: str) -> bool:
            return (await told()).get("CapacityShort", {}).get("status") == status

        shard.order(ShardMessage(demand_status=DemandStatus(short=[said])))
        await eventually(lambda: is_short("True"), "the condition")
        found = await told()
        assert found["CapacityShort"]["reason"] == "NoMatchingSupply"
        assert found["CapacityShort"]["message"] == "no machine of the fleet has it"
        assert found["AdditionalCapacityRequested"]["reason"] == "Scheduled"
        shard.order(ShardMessage(demand_status=DemandStatus()))
        await eventually(lambda: is_short("False"), "the condition to be taken back")
        assert (await told())["CapacityShort"]["reason"] == "Satisfied"
        assert (await get(client, f"{path}/r"))["status"]["phase"] == "Acknowledged"
        await client.delete(path)


async def test_a_rejected_request_reports_why_and_others_are_acknowledged(
    kubeconfig: dict[str, Path],
) -> None:
    """Until a roll-up is accepted as a whole; meanwhile it is not acknowledged."""
    async with (
        await admin(kubeconfig) as client,
        namespace(client, "left-out") as where,
        fake_shard() as (shard, address),
    ):
        path = requests_path(where)
        shard.rejected_items = [
            RejectedItem(index=0, why="300000 bytes are more than one need may take")
        ]
        await client.create(path, request("a", priority=1000))
        await client.create(path, request("b"))
        short = ShortConditionReader(client, path)

        async with operating(kubeconfig, address):
            [first, _] = (await shard.rollups.get()).needs
            odd, plain = ("a", "b") if first.priority else ("b", "a")
            rejected = {"status": "True", "reason": "Rejected", "phase": ""}
            await eventually(lambda: short.has(odd, **rejected), "the condition")
            assert "300000 bytes are more" in (await short.get(odd))["message"]
            await eventually(lambda: short.has(plain, phase="Acknowledged"), "the other's phase")
            assert await short.has(odd, **rejected)
            shard.rejected_items = []
            shard.order(ShardMessage(demand_status=DemandStatus()))
            await client.create(path, request("c"))
            satisfied = {"status": "False", "reason": "Satisfied", "phase": "Acknowledged"}
            await eventually(lambda: short.has(odd, **satisfied), "the condition to be taken back")
        await client.delete(path)


async def test_an_invalid_request_reports_why_until_it_is_fixed(
    kubeconfig: dict[str, Path],
) -> None:
    """The API server admits an amount that no machine and no sum can have; others go on."""
    async with (
        await admin(kubeconfig) as client,
        namespace(client, "senseless") as where,
        fake_shard() as (shard, address),
    ):
        path = requests_path(where)
        short = ShortConditionReader(client, path)
        huge = {"cpu": "1000000000000", "pods": "1"}
        await client.create(path, request("huge", resources=huge))
        await client.create(path, request("plain"))

        async with operating(kubeconfig, address):
            await rollup_with(shard, "1")
            rejected = {"status": "True", "reason": "Invalid", "phase": ""}
            await eventually(lambda: short.has("huge", **rejected), "the condition")
            assert "cpu" in (await short.get("huge"))["message"]
            await eventually(lambda: short.has("plain", phase="Acknowledged"), "the other's phase")
            assert "status" not in await short.get("plain")
            await client.create(path, request("later", resources=huge))
            await eventually(lambda: short.has("later", **rejected), "a later one's condition")
            shard.order(ShardMessage(demand_status=DemandStatus()))
            sane = {"spec": {"resources": {"cpu": "2"}}}
            await client.patch(f"{path}/huge", sane)
            await rollup_with(shard, "3")
            satisfied = {"status": "False", "reason": "Satisfied", "phase": "Acknowledged"}
            await eventually(
                lambda: short.has("huge", **satisfied), "the condition to be taken back"
            )
        await client.delete(path)


async def test_requests_beyond_the_message_size_report_it_and_those_in_effect_do_not(
    kubeconfig: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And likewise those of a roll-up that the shard rejects as a whole."""
    async with (
        await admin(kubeconfig) as client,
        namespace(client, "too-many") as where,
        fake_shard() as (shard, address),
    ):
        path = requests_path(where)
        short = ShortConditionReader(client, path)
        await client.create(path, request("in-force"))

        async with operating(kubeconfig, address):
            await eventually(lambda: short.has("in-force", phase="Acknowledged"), "the phase")
            monkeypatch.setattr(rollup, "MAX_ROLLUP_BYTES", 10)
            await client.create(path, request("unsent"))
            unsent = {"status": "True", "reason": "RollUpTooLarge", "phase": ""}
            await eventually(lambda: short.has("unsent", **unsent), "the condition")
            assert "exceed the limit of 10" in (await short.get("unsent"))["message"]
            shard.rejected = "12000 needs are more than 10000"
            monkeypatch.setattr(rollup, "MAX_ROLLUP_BYTES", 10**6)
            rejected = {"status": "True", "reason": "RollUpRejected"}
            await eventually(lambda: short.has("unsent", **rejected), "the other reason")
            assert (await short.get("unsent"))["message"] == shard.rejected
            assert "status" not in await short.get("in-force")
            shard.rejected = ""
            shard.order(ShardMessage(demand_status=DemandStatus()))
            satisfied = {"status": "False", "reason": "Satisfied", "phase": "Acknowledged"}
            await eventually(
                lambda: short.has("unsent", **satisfied), "the condition to be taken back"
            )
        await client.delete(path)
