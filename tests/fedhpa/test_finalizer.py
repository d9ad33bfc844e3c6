"""When an autoscaler is deleted, its HPAs go first, and replicas are the workload's own again."""

from __future__ import annotations

from bigfleet.fedhpa.objects import AUTOSCALED_BY, AUTOSCALERS, FINALIZER, ObjectKey
from tests.fedhpa.fake_fleet import Api, add, controller

KEY = ObjectKey(AUTOSCALERS, "n", "web")
TARGET = ObjectKey("federateddeployments", "n", "web")


async def _deleted() -> Api:
    api = Api(["a", "b"])
    add(api, "web", 2, 10)
    looker, _, _ = controller(api)
    await looker.reconcile(KEY)
    assert set(api.shares()) == {"a", "b"}
    api.objects[KEY.path]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return api


def _held(api: Api) -> bool:
    return FINALIZER in api.objects[KEY.path]["metadata"]["finalizers"]


async def test_it_is_deleted_once_no_hpa_of_it_is_left() -> None:
    api = await _deleted()
    looker, _, _ = controller(api)
    await looker.reconcile(KEY)
    assert api.shares() == {}
    assert not _held(api)
    assert api.objects[TARGET.path]["metadata"]["annotations"].get(AUTOSCALED_BY) is None


async def test_it_waits_for_a_member_that_is_cut_off_and_still_has_its_hpa() -> None:
    api = await _deleted()
    looker, _, _ = controller(api, cut_off="b")
    await looker.reconcile(KEY)
    assert set(api.shares()) == {"b"}
    assert _held(api)
    assert api.objects[TARGET.path]["metadata"]["annotations"][AUTOSCALED_BY] == "web"
    looker, _, _ = controller(api)
    await looker.reconcile(KEY)
    assert not _held(api)


async def test_what_runs_becomes_the_workloads_own_replicas() -> None:
    api = await _deleted()
    looker, _, _ = controller(api)
    await looker.reconcile(KEY)
    assert api.objects[TARGET.path]["spec"]["replicas"] == 4
