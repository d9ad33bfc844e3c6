"""An API server without controllers, for a federation's own objects: it can crash and come back."""

from __future__ import annotations

import pytest

from bigfleet.kube.client import CONNECTION_ERRORS, KubeClient
from controlplane.request import Binaries
from loaddriver.substrates.components import ControlPlaneConfig
from loaddriver.substrates.local import LocalSubstrate
from loaddriver.substrates.runscope import RunScope
from tests.support.substrates import FEW_OBJECTS

pytestmark = pytest.mark.cluster


async def test_what_it_has_acknowledged_outlives_a_kill_which_is_no_death(
    binaries: Binaries, scope: RunScope
) -> None:
    logs = scope.data_directory / "logs"
    substrate = LocalSubstrate(scope.run_id, scope.data_directory, logs, binaries, {}, FEW_OBJECTS)
    try:
        host, server = await substrate.start_api_server("host")
        async with await KubeClient.from_kubeconfig(host.kubeconfigs["admin"]) as admin:
            await admin.create("/api/v1/namespaces", {"metadata": {"name": "kept"}})
            await server.kill()
            with pytest.raises(CONNECTION_ERRORS):
                await admin.get("/api/v1/namespaces/kept")
            await server.restart()
            assert b'"kept"' in await admin.get("/api/v1/namespaces/kept")
    finally:
        await substrate.stop()


async def test_its_garbage_is_collected_when_it_is_as_large_as_it_may_be(
    binaries: Binaries, scope: RunScope
) -> None:
    logs, settings = scope.data_directory / "logs", ControlPlaneConfig(api_server_mib=300)
    substrate = LocalSubstrate(scope.run_id, scope.data_directory, logs, binaries, {}, settings)
    try:
        host, _ = await substrate.start_api_server("host")
        async with await KubeClient.from_kubeconfig(host.kubeconfigs["admin"]) as admin:
            lines = (await admin.get("/metrics")).decode().splitlines()
    finally:
        await substrate.stop()
    values = dict(line.split() for line in lines if line.startswith("go_gc_go"))
    assert float(values["go_gc_gomemlimit_bytes"]) == 300 * 2**20
    assert float(values["go_gc_gogc_percent"]) > 10_000, "it is never collected for its growth"
