"""A workload leaves its replicas to an autoscaler that is there first, if that one acts."""

from __future__ import annotations

from typing import Any

import pytest

from bigfleet.fedhpa.objects import AUTOSCALED_BY, AUTOSCALERS, ObjectKey
from bigfleet.fedhpa.workload.controller import WorkloadController
from tests.fedhpa.fake_fleet import Api, add, controller

KEY = ObjectKey("federateddeployments", "n", "web")
AUTOSCALER = ObjectKey(AUTOSCALERS, "n", "web")
_REFUSED = {
    "type": "Accepted",
    "status": "False",
    "reason": "NotAccepted",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


async def _requests(status: dict[str, Any], **metadata: Any) -> int:
    """The requests of one pass over an unclaimed workload."""
    api = Api(["a"])
    add(api, "web", 1, 5)
    api.objects[AUTOSCALER.path]["status"] = status
    api.objects[AUTOSCALER.path]["metadata"] |= metadata
    _, host, registry = controller(api)
    looker = WorkloadController(host, registry, lambda: api.now, 1.0)
    await looker.reconcile(KEY)
    return api.requests


async def test_it_waits_for_an_autoscaler_that_was_not_looked_at_yet() -> None:
    waiting = await _requests({})
    assert waiting == 1, "the finalizer, and nothing else"


async def test_it_waits_for_an_autoscaler_that_has_shares_and_will_claim_it() -> None:
    assert await _requests({"clusters": [{"name": "a"}], "conditions": []}) == 1


@pytest.mark.parametrize(
    ("status", "metadata"),
    [
        ({"clusters": [{"name": "a"}], "conditions": [_REFUSED]}, {}),
        ({}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}),
    ],
)
async def test_it_does_not_wait_for_one_that_is_not_accepted_or_deleted(
    status: dict[str, Any], metadata: dict[str, Any]
) -> None:
    assert await _requests(status, **metadata) > 1


async def test_once_claimed_it_names_its_autoscaler() -> None:
    api = Api(["a"])
    add(api, "web", 1, 5)
    looker, _, _ = controller(api)
    await looker.reconcile(AUTOSCALER)
    assert api.objects[KEY.path]["metadata"]["annotations"][AUTOSCALED_BY] == "web"


async def _both(first: str, second: str) -> Api:
    """Two autoscalers of one target that does not exist yet, reconciled in this order."""
    api = Api(["a"])
    for name, created in (("older", "2026-01-01T00:00:00Z"), ("younger", "2026-01-02T00:00:00Z")):
        add(api, name, 1, 5)
        body = api.objects[ObjectKey(AUTOSCALERS, "n", name).path]
        body["spec"]["scaleTargetRef"] = {"kind": "FederatedDeployment", "name": "later"}
        body["metadata"]["creationTimestamp"] = created
    looker, _, _ = controller(api)
    await looker.reconcile(ObjectKey(AUTOSCALERS, "n", first))
    await looker.reconcile(ObjectKey(AUTOSCALERS, "n", second))
    return api


@pytest.mark.parametrize("order", [("older", "younger"), ("younger", "older")])
async def test_before_the_target_exists_the_older_one_gets_shares_and_the_other_none(
    order: tuple[str, str],
) -> None:
    """Two HPAs on one target would stop each other in every member."""
    api = await _both(*order)
    assert [name.name for name in api.hpas["a"]] == ["older"]
    conditions = api.objects[ObjectKey(AUTOSCALERS, "n", "younger").path]["status"]["conditions"]
    assert conditions[0]["status"] == "False"
    assert "already scaled by FederatedHorizontalPodAutoscaler older" in conditions[0]["message"]


async def test_once_the_older_one_is_deleted_the_other_is_reconciled_and_takes_over() -> None:
    api = await _both("older", "younger")
    del api.objects[ObjectKey(AUTOSCALERS, "n", "older").path]
    api.hpas["a"].clear()
    looker, _, _ = controller(api)
    seen: list[ObjectKey] = []
    looker.add_debounced = seen.append  # type: ignore[assignment]
    looker.autoscaler_changed(ObjectKey(AUTOSCALERS, "n", "older"))
    assert ObjectKey(AUTOSCALERS, "n", "younger") in seen
    await looker.reconcile(ObjectKey(AUTOSCALERS, "n", "younger"))
    assert [name.name for name in api.hpas["a"]] == ["younger"]
