"""A federated HPA's status of its clusters."""

from __future__ import annotations

from typing import Any

from bigfleet.fedhpa.objects import AUTOSCALERS, PREFERENCES, ObjectKey
from tests.fedhpa.fake_fleet import Api, add, controller

KEY = ObjectKey(AUTOSCALERS, "n", "web")


async def _status(api: Api, cut_off: str = "") -> dict[str, Any]:
    looker, _, _ = controller(api, cut_off)
    await looker.reconcile(KEY)
    status: dict[str, Any] = api.objects[KEY.path]["status"]
    return status


def _condition(status: dict[str, Any], kind: str) -> dict[str, str]:
    return next(each for each in status["conditions"] if each["type"] == kind)


async def test_sums_and_each_clusters_part_are_there() -> None:
    api = Api(["a", "b"])
    add(api, "web", 2, 10)
    status = await _status(api)
    assert (status["minReplicas"], status["maxReplicas"], status["clustersInUse"]) == (2, 10, 2)
    assert [line["name"] for line in status["clusters"]] == ["a", "b"]
    assert status["clusters"][0]["lastMove"]["reason"] == "first split"
    assert _condition(status, "BoundsApplied")["status"] == "True"


async def test_a_name_that_is_not_a_member_is_reported() -> None:
    api = Api(["a", "b"])
    add(api, "web", 2, 10)
    api.objects[KEY.path]["spec"]["clusters"] = {"names": ["a", "tokyo"]}
    condition = _condition(await _status(api), "ClustersReachable")
    assert condition["status"] == "False"
    assert "tokyo" in condition["message"]


async def test_a_preference_for_a_cluster_that_is_not_a_member_is_reported() -> None:
    api = Api(["a", "b"])
    add(api, "web", 2, 10)
    api.objects[KEY.path]["spec"]["preferences"] = [{"cluster": "*", "maxReplicas": 9}]
    marks = {PREFERENCES: '{"clusters": {"tokyo": {"minReplicas": 1}}}'}
    api.objects[KEY.path]["metadata"]["annotations"] = marks
    condition = _condition(await _status(api), "ClustersReachable")
    assert condition["message"] == "not members of the federation: tokyo"


async def test_the_last_cluster_that_was_removed_has_no_line_any_more() -> None:
    api = Api(["a"])
    add(api, "web", 2, 10)
    await _status(api)
    del api.hpas["a"]
    status = await _status(api)
    assert status["clusters"] == []
    assert status["maxReplicas"] == 0


async def test_several_writes_into_a_cluster_are_reported_as_one_move() -> None:
    api = Api(["a", "b"])
    add(api, "web", 1, 10)
    await _status(api)
    api.now += 1000.0
    api.objects[KEY.path]["spec"]["minReplicas"] = 4
    status = await _status(api)
    assert status["clusters"][0]["lastMove"]["change"] == "min 1, max 10 -> min 2, max 5"


async def test_a_member_that_is_cut_off_keeps_its_line() -> None:
    api = Api(["a", "b"])
    add(api, "web", 2, 10)
    await _status(api)
    status = await _status(api, cut_off="b")
    line = next(each for each in status["clusters"] if each["name"] == "b")
    assert (line["state"], line["minReplicas"], line["maxReplicas"]) == ("Unreachable", 1, 5)
    assert "keeping their shares" in _condition(status, "ClustersReachable")["message"]


async def test_a_condition_keeps_its_time_while_it_stays_the_same() -> None:
    api = Api(["a", "b"])
    add(api, "web", 2, 10)
    before = _condition(await _status(api), "BoundsApplied")
    api.now += 1000.0
    assert _condition(await _status(api), "BoundsApplied") == before


async def test_preferences_that_cannot_be_met_are_named() -> None:
    api = Api(["a", "b"])
    add(api, "web", 2, 10)
    api.objects[KEY.path]["spec"]["preferences"] = [
        {"cluster": "a", "minReplicas": 8},
        {"cluster": "b", "minReplicas": 8},
    ]
    condition = _condition(await _status(api), "BoundsApplied")
    assert condition["status"] == "False"
    assert "cluster b: preferred minReplicas 8" in condition["message"]
