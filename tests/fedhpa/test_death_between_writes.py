"""The controller may crash before or after any request; its successor keeps the totals."""

from __future__ import annotations

import contextlib

import pytest

from bigfleet.fedhpa.objects import AUTOSCALERS, ObjectKey
from bigfleet.fedhpa.shares import ReplicaBounds, Share
from bigfleet.fedhpa.shares.invariants import violations
from tests.fedhpa.fake_fleet import Api, Died, add, controller

TOTAL = ReplicaBounds(6, 30)
KEY = ObjectKey(AUTOSCALERS, "n", "web")


class _Watched(Api):
    """Each write into a member is held against the invariants, by what all members really have."""

    def __init__(self) -> None:
        super().__init__(["a", "b", "c"])
        self.truth: dict[str, Share] = {}
        self.on_share = self._check

    def _check(self, member: str, share: Share | None) -> None:
        before = dict(self.truth)
        if share is None:
            self.truth.pop(member, None)
        else:
            self.truth[member] = share
        broken = violations(TOTAL, {}, before, self.truth)
        assert not broken, f"{member} -> {share}: {broken}"


async def _split() -> _Watched:
    api = _Watched()
    add(api, "web", TOTAL.min, TOTAL.max)
    looker, _, _ = controller(api)
    await looker.reconcile(KEY)
    assert api.shares() == dict.fromkeys("abc", Share(2, 10))
    return api


def _spike(api: Api, member: str) -> None:
    """Later a member's HPA is at its limit and wants twice as much; the others run two replicas."""
    api.now += 1000.0
    for name, hpas in api.hpas.items():
        for hpa in hpas.values():
            high = hpa.spec.max_replicas
            api.replicas[name] = (high, high, True) if name == member else (2, 2, False)
            spec = {"minReplicas": hpa.spec.min_replicas, "maxReplicas": high}
            marks = {"labels": hpa.metadata.labels, "annotations": hpa.metadata.annotations}
            metadata = {"name": "web", "namespace": "n", "uid": "", **marks}
            hpas[hpa.name] = api.hpa(name, {"metadata": metadata, "spec": spec})


async def _requests_of_a_move() -> int:
    api = await _split()
    _spike(api, "a")
    before = api.requests
    looker, _, _ = controller(api)
    await looker.reconcile(KEY)
    assert api.shares()["a"].max > 10
    return api.requests - before


@pytest.mark.parametrize("does_it", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("cut_off", ["", "a", "b", "c"])
async def test_death_at_any_request_of_a_move_breaks_no_sum(does_it: bool, cut_off: str) -> None:
    """Its successor may even find a member cut off, and must guess what that one got."""
    for number in range(1, await _requests_of_a_move() + 1):
        api = await _split()
        _spike(api, "a")
        api.dies_at, api.does_it = api.requests + number, does_it
        looker, _, _ = controller(api)
        with contextlib.suppress(Died):
            await looker.reconcile(KEY)
        api.dies_at = None
        _spike(api, "b")
        looker, _, _ = controller(api, cut_off)
        for _ in range(3):
            await looker.reconcile(KEY)
        looker, _, _ = controller(api)
        for _ in range(3):
            await looker.reconcile(KEY)
        assert sum(share.max for share in api.shares().values()) == TOTAL.max
        assert sum(share.min for share in api.shares().values()) == TOTAL.min


@pytest.mark.parametrize("does_it", [False, True], ids=["before", "after"])
async def test_death_at_any_request_of_the_first_split_leaves_it_to_the_next(
    does_it: bool,
) -> None:
    for number in range(1, 12):
        api = _Watched()
        add(api, "web", TOTAL.min, TOTAL.max)
        api.dies_at, api.does_it = number, does_it
        looker, _, _ = controller(api)
        with contextlib.suppress(Died):
            await looker.reconcile(KEY)
        api.dies_at = None
        looker, _, _ = controller(api)
        for _ in range(2):
            await looker.reconcile(KEY)
        assert sum(share.max for share in api.shares().values()) == TOTAL.max
        assert sum(share.min for share in api.shares().values()) == TOTAL.min
