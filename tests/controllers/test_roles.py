"""How the roles start, and their errors when they cannot."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from kubernetes.aio.client.configuration import Configuration

from bigfleet.controllers.operator import role as operator
from bigfleet.controllers.operator.role import Operator
from bigfleet.controllers.pod_controller import role as pod_controller
from bigfleet.controllers.pod_controller.controller import PodController
from bigfleet.kube.client import KubeClient
from bigfleet.model.errors import InvalidInput
from bigfleet.tasks import run_until_first_completes, run_until_stopped


def _settings(kubeconfig: Path | None) -> operator.OperatorConfig:
    return operator.OperatorConfig("c", "127.0.0.1:1", kubeconfig, observe_port=0)


async def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(InvalidInput, match=str(missing)):
        await operator.run(_settings(missing), asyncio.Event())
    with pytest.raises(InvalidInput, match=str(missing)):
        await pod_controller.run(pod_controller.PodControllerConfig(missing, 0), asyncio.Event())


async def test_outside_a_pod_a_kubeconfig_is_needed() -> None:
    with pytest.raises(InvalidInput, match="ServiceAccount"):
        await operator.run(_settings(None), asyncio.Event())


async def test_readiness_reports_what_is_missing() -> None:
    async with KubeClient(Configuration(host="http://127.0.0.1:1")) as client:
        assert "no answer yet" in Operator(_settings(None), client).not_ready()
        assert (
            "capacityrequests is not listed yet"
            in PodController(client, 1, time.monotonic, time.time).not_ready()
        )


async def test_a_role_waits_for_an_unreachable_cluster_and_still_stops() -> None:
    stop = asyncio.Event()
    async with KubeClient(Configuration(host="http://127.0.0.1:1")) as client:
        serving = Operator(_settings(None), client)
        task = asyncio.create_task(run_until_stopped(stop, serving.run()))
        async with asyncio.timeout(60):
            while "Cannot connect" not in (why := serving.not_ready()):
                assert not task.done()
                await asyncio.sleep(0.005)
        assert "127.0.0.1:1" in why
        stop.set()
        async with asyncio.timeout(60):
            await task


async def test_the_error_of_one_part_ends_all_and_is_raised() -> None:
    ended: list[str] = []

    async def lasting() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("lasting")

    async def failing() -> None:
        raise InvalidInput("x", 1, "is wrong")

    with pytest.raises(InvalidInput):
        await run_until_first_completes(lasting(), failing())
    assert ended == ["lasting"]
