"""A cluster that does not take the HPA is done without, and named, until it does."""

from __future__ import annotations

from typing import Any

from bigfleet.api.kube.client import NOT_FOUND, ApiError
from bigfleet.federation.members.link import NotOurs
from bigfleet.federation.objects import AUTOSCALERS, Key
from bigfleet.federation.shares import Share
from tests.federation.played_fleet import Api, add, controller

KEY = Key(AUTOSCALERS, "n", "web")
WHOLE, HALF = Share(2, 10), Share(1, 5)
_MISSING = ApiError("PATCH x", NOT_FOUND, "NotFound", 'namespaces "n" not found')


def _told(api: Api) -> dict[str, Any]:
    conditions: list[dict[str, Any]] = api.objects[KEY.path]["status"]["conditions"]
    return next(each for each in conditions if each["type"] == "InForce")


def _api(refusal: ApiError) -> Api:
    """The cluster that comes first refuses."""
    api = Api(["a", "b"])
    add(api, "web", 2, 10)
    api.refusals["a"] = refusal
    return api


async def test_the_others_get_all_when_the_first_cluster_refuses() -> None:
    api = _api(_MISSING)
    looker, _, _ = controller(api)
    await looker.look(KEY)
    await looker.look(KEY)
    assert api.shares() == {"b": WHOLE}


async def test_the_cluster_that_refuses_is_named_with_what_to_do() -> None:
    api = _api(_MISSING)
    looker, _, _ = controller(api)
    for _ in range(2):
        await looker.look(KEY)
        assert _told(api)["status"] == "False"
        assert "cluster a: " in _told(api)["message"]
        assert "create it there" in _told(api)["message"]


async def test_a_strangers_object_is_left_alone_and_told() -> None:
    api = _api(NotOurs("Deployment n/web", "x=y"))
    looker, _, _ = controller(api)
    await looker.look(KEY)
    await looker.look(KEY)
    assert "Deployment n/web: 409 NotOurs: was not made by" in _told(api)["message"]
    assert api.shares() == {"b": WHOLE}


async def test_it_is_asked_again_before_anything_is_taken_from_the_others() -> None:
    api = _api(_MISSING)
    looker, _, _ = controller(api)
    await looker.look(KEY)
    await looker.look(KEY)
    api.now += 300.0
    await looker.look(KEY)
    assert api.shares() == {"b": WHOLE}
    del api.refusals["a"]
    await looker.look(KEY)
    assert "a" not in api.shares(), "it is not asked all the time"
    api.now += 61.0
    await looker.look(KEY)
    assert api.shares() == {"a": HALF, "b": HALF}
    assert _told(api)["status"] == "True"


async def test_another_content_is_offered_at_once() -> None:
    """The user mended what every cluster had refused."""
    api = _api(_MISSING)
    looker, host, _ = controller(api)
    await looker.look(KEY)
    del api.refusals["a"]
    host.autoscalers[KEY].spec.behavior = type(host.autoscalers[KEY].spec.behavior)(b'{"x": {}}')
    await looker.look(KEY)
    assert "a" in api.shares()
