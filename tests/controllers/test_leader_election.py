"""At most one process holds the Lease, on a real API server and a clock of our own."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from bigfleet.api.install import SYSTEM_NAMESPACE
from bigfleet.controllers.leader_election import LeaderElector, LeaseName
from bigfleet.kube.client import ApiError, KubeClient
from bigfleet.model.errors import BigFleetError

pytestmark = pytest.mark.cluster

# An attempt gets a sixth of it, which a busy machine must be able to keep.
LASTS_SECONDS = 120.0
_NOT_QUITE, _JUST = LASTS_SECONDS - 0.1, LASTS_SECONDS + 0.1
_NAME = LeaseName(SYSTEM_NAMESPACE, "test-leading", "the file x")
_LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases/{_NAME.name}"


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def _client_without_lease(kubeconfig: dict[str, Path]) -> KubeClient:
    client = await KubeClient.from_kubeconfig(kubeconfig["admin"])
    with contextlib.suppress(ApiError):
        await client.delete(_LEASE)
    return client


async def test_a_second_gets_the_lease_only_when_it_saw_no_renewal_for_long(
    kubeconfig: dict[str, Path],
) -> None:
    async with await _client_without_lease(kubeconfig) as client:
        clock = _Clock()
        first = LeaderElector(client, _NAME, "first", clock, LASTS_SECONDS)
        second = LeaderElector(client, _NAME, "second", clock, LASTS_SECONDS)
        assert await first.try_acquire_or_renew()
        assert not await second.try_acquire_or_renew()
        clock.now += _NOT_QUITE
        assert not await second.try_acquire_or_renew()
        assert await first.try_acquire_or_renew(), "its own it may renew at any time"
        clock.now += _NOT_QUITE
        assert not await second.try_acquire_or_renew(), "the renewal was seen just now"
        clock.now += _JUST
        assert await second.try_acquire_or_renew()
        assert not await first.try_acquire_or_renew()


async def test_who_cannot_renew_stops_before_another_may_begin(
    kubeconfig: dict[str, Path],
) -> None:
    async with await _client_without_lease(kubeconfig) as client:
        clock = _Clock()
        holder = LeaderElector(client, _NAME, "holder", clock, LASTS_SECONDS)
        await holder.acquire()
        clock.now += 2 * LASTS_SECONDS / 3
        await holder.renew()


async def test_a_denial_counts_only_when_it_lasts(kubeconfig: dict[str, Path]) -> None:
    """An API server that just restarted denies access for a moment."""
    async with await KubeClient.from_kubeconfig(kubeconfig["recorder"]) as nobody:
        clock = _Clock()
        elector = LeaderElector(nobody, _NAME, "one", clock, LASTS_SECONDS)
        assert not await elector.try_acquire_or_renew()
        clock.now += _NOT_QUITE
        assert not await elector.try_acquire_or_renew()
        clock.now += _JUST - _NOT_QUITE
        with pytest.raises(BigFleetError, match="the file x grants access"):
            await elector.acquire()


async def test_who_ends_cleanly_lets_another_begin_at_once(kubeconfig: dict[str, Path]) -> None:
    """Also when it never held the Lease; another's it leaves alone."""
    async with await _client_without_lease(kubeconfig) as client:
        clock = _Clock()
        first = LeaderElector(client, _NAME, "first", clock, LASTS_SECONDS)
        second = LeaderElector(client, _NAME, "second", clock, LASTS_SECONDS)
        assert await first.try_acquire_or_renew()
        assert not await second.try_acquire_or_renew()
        await second.release()
        assert not await second.try_acquire_or_renew()
        await first.release()
        assert await second.try_acquire_or_renew()
        await first.release()
        assert not await first.try_acquire_or_renew()


async def test_an_outage_is_logged_once(
    kubeconfig: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    async with await KubeClient.from_kubeconfig(kubeconfig["recorder"]) as nobody:
        elector = LeaderElector(nobody, _NAME, "one", _Clock(), LASTS_SECONDS)
        for _ in range(2):
            assert not await elector.try_acquire_or_renew()
    assert len([each for each in caplog.records if "lease" in each.message]) == 1
