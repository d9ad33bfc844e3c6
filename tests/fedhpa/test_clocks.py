"""A clock that was wrong and is set right does not keep shares from moving."""

from __future__ import annotations

import pytest

from bigfleet.fedhpa.members.objects import LAST_INCREASE
from bigfleet.fedhpa.objects import AUTOSCALERS, ObjectKey
from bigfleet.fedhpa.shares import HpaReport, Share
from bigfleet.fedhpa.shares.timestamps import Timestamps, update_timestamps
from bigfleet.kube.timestamps import rfc3339
from tests.fedhpa.fake_fleet import Api, add, controller

KEY = ObjectKey(AUTOSCALERS, "n", "web")
_DAY = 86_400.0


def _seen_anew(api: Api, member: str, **marks: str) -> None:
    """The member's HPA as it is now, with these marks on it."""
    for name, hpa in api.hpas[member].items():
        spec = {"minReplicas": hpa.spec.min_replicas, "maxReplicas": hpa.spec.max_replicas}
        annotations = {**hpa.metadata.annotations, **marks}
        metadata = {"name": "web", "namespace": "n", "uid": "", "annotations": annotations}
        api.hpas[member][name] = api.hpa(member, {"metadata": metadata, "spec": spec})


@pytest.mark.parametrize(("ahead_seconds", "given"), [(_DAY, True), (30.0, False)])
async def test_what_was_received_in_a_future_that_did_not_come_is_not_kept_until_then(
    ahead_seconds: float, given: bool
) -> None:
    """Half a minute ahead is within what members' clocks may differ by."""
    api = Api(["a", "b"])
    add(api, "web", 2, 20)
    looker, _, _ = controller(api)
    await looker.reconcile(KEY)
    api.now += _DAY
    api.replicas = {"a": (1, 1, False), "b": (10, 10, True)}
    _seen_anew(api, "a", **{LAST_INCREASE: rfc3339(api.now + ahead_seconds)})
    _seen_anew(api, "b")
    looker, _, _ = controller(api)
    await looker.reconcile(KEY)
    assert (api.shares()["b"].max > 10) is given


def test_waiting_begins_now_when_the_clock_is_set_back() -> None:
    waits = Timestamps(scheduled=1, unscheduled_since=_DAY, idle_since=_DAY, returned_at=_DAY)
    timestamps = update_timestamps(waits, True, Share(1, 5), HpaReport(1, 2, 2, 1), 100.0)
    assert timestamps.unscheduled_since == 100.0
    assert timestamps.returned_at == 100.0
    idle = update_timestamps(waits, True, Share(1, 5), HpaReport(1, 1, 1, 1), 100.0)
    assert idle.idle_since == 100.0
