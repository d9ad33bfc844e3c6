"""What both controllers' roles do alike: connect to their cluster, and run until told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path

from kubernetes.aio.config import ConfigException
from yaml import YAMLError

from bigfleet.api.kube.client import KubeClient
from bigfleet.model.errors import InvalidInput


async def connect(kubeconfig: Path | None) -> KubeClient:
    """A client for the kubeconfig's current context, or for the cluster this pod runs in.

    InvalidInput when the kubeconfig cannot be read or this is no pod.
    """
    try:
        if kubeconfig is None:
            return KubeClient.in_cluster()
        return await KubeClient.from_kubeconfig(kubeconfig)
    except (ConfigException, OSError, TypeError, YAMLError) as error:
        shown = str(kubeconfig) if kubeconfig else "the pod's ServiceAccount"
        raise InvalidInput("access to the cluster", shown, f"is unusable: {error}") from None


async def until_stopped(stop: asyncio.Event, *work: Coroutine[object, object, None]) -> None:
    """Run all `work` until `stop` is set, then cancel it; an error of one ends all, raised."""

    async def stopped() -> None:
        await stop.wait()

    await until_one_ends(stopped(), *work)


async def until_one_ends(*work: Coroutine[object, object, None]) -> None:
    """Run all `work` until one of them ends, then cancel the others; raises its error."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
