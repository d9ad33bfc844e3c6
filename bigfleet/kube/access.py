"""Connect to a cluster by kubeconfig, or by the ServiceAccount of the pod this process runs in."""

from __future__ import annotations

from pathlib import Path

from kubernetes.aio.config import ConfigException
from yaml import YAMLError

from bigfleet.kube.client import KubeClient
from bigfleet.model.errors import InvalidInput


async def connect(kubeconfig: Path | None) -> KubeClient:
    """A client for the kubeconfig's current context, or for the cluster this pod runs in.

    InvalidInput when the kubeconfig cannot be read or this process does not run in a pod.
    """
    try:
        if kubeconfig is None:
            return KubeClient.in_cluster()
        return await KubeClient.from_kubeconfig(kubeconfig)
    except (ConfigException, OSError, TypeError, YAMLError) as error:
        shown = str(kubeconfig) if kubeconfig else "the pod's ServiceAccount"
        raise InvalidInput("access to the cluster", shown, f"is unusable: {error}") from None
