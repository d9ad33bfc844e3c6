"""At most one process holds the Lease, on a real API server and a clock of our own."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from bigfleet.api.install_federation import install_federation
from bigfleet.api.kube.client import ApiError, KubeClient
from bigfleet.federation.leading import Leadership
from bigfleet.model.errors import BigFleetError

pytestmark = pytest.mark.cluster

# An attempt gets a sixth of it, which a busy machine must be able to keep.
LASTS_SECONDS = 120.0
_NOT_QUITE, _JUST = LASTS_SECONDS - 0.1, LASTS_SECONDS + 0.1
_LEASE = "/apis/coordination.k8s.io/v1/namespaces/bigfleet-federation/leases/bigfleet-federation"


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def _client_without_lease(kubeconfig: dict[str, Path]) -> KubeClient:
    client = await KubeClient.from_kubeconfig(kubeconfig["admin"])
    await install_federation(client)
    with contextlib.suppress(ApiError):
        await client.delete(_LEASE)
    return client


async def test_a_second_gets_the_lease_only_when_it_saw_no_renewal_for_long(
    kubeconfig: dict[str, Path],
) -> None:
    async with await _client_without_lease(kubeconfig) as client:
        clock = _Clock()
        first = Leadership(client, "first", clock, LASTS_SECONDS)
        second = Leadership(client, "second", clock, LASTS_SECONDS)
        assert await first.attempt()
        assert not await second.attempt()
        clock.now += _NOT_QUITE
        assert not await second.attempt()
        assert await first.attempt(), "its own it may renew at any time"
        clock.now += _NOT_QUITE
        assert not await second.attempt(), "the renewal was seen just now"
        clock.now += _JUST
        assert await second.attempt()
        assert not await first.attempt()


async def test_who_cannot_renew_stops_before_another_may_begin(
    kubeconfig: dict[str, Path],
) -> None:
    async with await _client_without_lease(kubeconfig) as client:
        clock = _Clock()
        holder = Leadership(client, "holder", clock, LASTS_SECONDS)
        await holder.acquire()
        clock.now += 2 * LASTS_SECONDS / 3
        await holder.keep()


async def test_a_refusal_counts_only_when_it_lasts(kubeconfig: dict[str, Path]) -> None:
    """An API server that just came back refuses everybody for a moment."""
    async with await KubeClient.from_kubeconfig(kubeconfig["recorder"]) as nobody:
        clock = _Clock()
        leadership = Leadership(nobody, "one", clock, LASTS_SECONDS)
        assert not await leadership.attempt()
        clock.now += _NOT_QUITE
        assert not await leadership.attempt()
        clock.now += _JUST - _NOT_QUITE
        with pytest.raises(BigFleetError, match="bigfleet fedhpa install"):
            await leadership.acquire()


async def test_an_outage_is_logged_once(
    kubeconfig: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    async with await KubeClient.from_kubeconfig(kubeconfig["recorder"]) as nobody:
        leadership = Leadership(nobody, "one", _Clock(), LASTS_SECONDS)
        for _ in range(2):
            assert not await leadership.attempt()
    assert len([each for each in caplog.records if "Lease" in each.message]) == 1
