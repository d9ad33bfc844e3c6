"""A cluster that does not take the HPA is done without, and named, until it does."""

from __future__ import annotations

from typing import Any

import pytest

from bigfleet.fedhpa.members.link import NotManaged
from bigfleet.fedhpa.objects import AUTOSCALERS, ObjectKey
from bigfleet.fedhpa.shares import Share
from bigfleet.kube.client import NOT_FOUND, ApiError
from tests.fedhpa.fake_fleet import Api, add, controller

KEY = ObjectKey(AUTOSCALERS, "n", "web")
WHOLE, HALF = Share(2, 10), Share(1, 5)
_MISSING = ApiError("PATCH x", NOT_FOUND, "NotFound", 'namespaces "n" not found')


def _told(api: Api) -> dict[str, Any]:
    conditions: list[dict[str, Any]] = api.objects[KEY.path]["status"]["conditions"]
    return next(each for each in conditions if each["type"] == "BoundsApplied")


def _api(refusal: ApiError) -> Api:
    """The first cluster rejects the HPA."""
    api = Api(["a", "b"])
    add(api, "web", 2, 10)
    api.rejections["a"] = refusal
    return api


async def test_the_others_get_all_when_the_first_cluster_rejects() -> None:
    api = _api(_MISSING)
    looker, _, _ = controller(api)
    await looker.reconcile(KEY)
    await looker.reconcile(KEY)
    assert api.shares() == {"b": WHOLE}


async def test_the_cluster_that_rejects_is_named_with_a_hint() -> None:
    api = _api(_MISSING)
    looker, _, _ = controller(api)
    for _ in range(2):
        await looker.reconcile(KEY)
        assert _told(api)["status"] == "False"
        assert "cluster a: " in _told(api)["message"]
        assert "create it there" in _told(api)["message"]


async def test_an_unmanaged_object_is_left_alone_and_reported() -> None:
    api = _api(NotManaged("Deployment n/web", "x=y"))
    looker, _, _ = controller(api)
    await looker.reconcile(KEY)
    await looker.reconcile(KEY)
    assert "Deployment n/web: 409 NotManaged: exists and is not managed by" in _told(api)["message"]
    assert api.shares() == {"b": WHOLE}


async def test_it_is_retried_before_anything_is_taken_from_the_others() -> None:
    api = _api(_MISSING)
    looker, _, _ = controller(api)
    await looker.reconcile(KEY)
    await looker.reconcile(KEY)
    api.now += 300.0
    await looker.reconcile(KEY)
    assert api.shares() == {"b": WHOLE}
    del api.rejections["a"]
    await looker.reconcile(KEY)
    assert "a" not in api.shares(), "it is not asked all the time"
    api.now += 61.0
    await looker.reconcile(KEY)
    assert api.shares() == {"a": HALF, "b": HALF}
    assert _told(api)["status"] == "True"


async def test_changed_content_is_retried_at_once() -> None:
    """The user fixed what every cluster had rejected."""
    api = _api(_MISSING)
    looker, host, _ = controller(api)
    await looker.reconcile(KEY)
    del api.rejections["a"]
    host.autoscalers[KEY].spec.behavior = type(host.autoscalers[KEY].spec.behavior)(b'{"x": {}}')
    await looker.reconcile(KEY)
    assert "a" in api.shares()


async def test_a_cluster_that_rejects_and_is_cut_off_is_waited_for_without_a_timer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else each autoscaler would be looked at twenty times a second until it is back."""
    api = _api(_MISSING)
    looker, _, registry = controller(api)
    await looker.reconcile(KEY)
    registry.links["a"].state.mark_unreachable("is cut off")
    api.now += 300.0
    waits: list[float | None] = []
    monkeypatch.setattr(looker._debouncer, "add_after", lambda _, wait: waits.append(wait))
    await looker.reconcile(KEY)
    assert waits
    assert all(wait is None or wait > 0 for wait in waits)
