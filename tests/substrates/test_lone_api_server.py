"""An API server without controllers, for a federation's own objects: it can crash and come back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bigfleet.kube.client import CONNECTION_ERRORS, KubeClient
from controlplane.request import Binaries
from loaddriver.substrates.apiserver import ApiServer
from loaddriver.substrates.components import ControlPlaneConfig
from loaddriver.substrates.local import LocalSubstrate
from loaddriver.substrates.runscope import RunScope
from tests.support.substrates import FEW_OBJECTS

pytestmark = pytest.mark.cluster


@asynccontextmanager
async def _alone(
    binaries: Binaries, scope: RunScope, settings: ControlPlaneConfig
) -> AsyncIterator[tuple[KubeClient, ApiServer]]:
    """An administrator's client of an API server, and the server."""
    logs = scope.data_directory / "logs"
    substrate = LocalSubstrate(scope.run_id, scope.data_directory, logs, binaries, {}, settings)
    try:
        host, server = await substrate.start_api_server("host")
        async with await KubeClient.from_kubeconfig(host.kubeconfigs["admin"]) as admin:
            yield admin, server
    finally:
        await substrate.stop()


async def test_what_it_has_acknowledged_outlives_a_kill_which_is_no_death(
    binaries: Binaries, scope: RunScope
) -> None:
    async with _alone(binaries, scope, FEW_OBJECTS) as (admin, server):
        await admin.create("/api/v1/namespaces", {"metadata": {"name": "kept"}})
        await server.kill()
        with pytest.raises(CONNECTION_ERRORS):
            await admin.get("/api/v1/namespaces/kept")
        await server.restart()
        assert b'"kept"' in await admin.get("/api/v1/namespaces/kept")


async def test_its_garbage_is_collected_when_it_is_as_large_as_it_may_be(
    binaries: Binaries, scope: RunScope
) -> None:
    async with _alone(binaries, scope, ControlPlaneConfig(api_server_mib=300)) as (admin, _):
        lines = (await admin.get("/metrics")).decode().splitlines()
    values = dict(line.split() for line in lines if line.startswith("go_gc_go"))
    assert float(values["go_gc_gomemlimit_bytes"]) == 300 * 2**20
    assert float(values["go_gc_gogc_percent"]) > 10_000, "it is never collected for its growth"
