"""The clusters of a run as a worker on another host reaches them: by kubeconfigs of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import yaml

from loaddriver.errors import InfrastructureError
from loaddriver.load.files import ClusterEndpoint, cluster_endpoint
from loaddriver.substrates.credentials import LOAD_DRIVER


def endpoints_in(folder: Path, names: Iterable[str]) -> dict[str, ClusterEndpoint]:
    """The endpoints of these clusters, by name: from `CLUSTER.kubeconfig`, or
    `CLUSTER/load-driver.kubeconfig` as pods of charts/scaletest have it.

    Raises InfrastructureError if one is missing or cannot be used.
    """
    return {name: _endpoint(folder, name) for name in names}


def endpoints_for(
    clusters: Sequence[tuple[str, str]], own: Mapping[str, ClusterEndpoint]
) -> list[ClusterEndpoint]:
    """A worker's `own` endpoints in the order of the plan; `clusters` are names and URLs.

    Raises InfrastructureError if one is missing or is another cluster than the runner's.
    """
    for name, url in clusters:
        if name not in own:
            raise InfrastructureError(f"it has no credentials for {name}")
        if own[name].url != url:
            raise InfrastructureError(f"its {name} is {own[name].url}, the runner's is {url}")
    return [own[name] for name, _ in clusters]


def _endpoint(folder: Path, name: str) -> ClusterEndpoint:
    paths = folder / f"{name}.kubeconfig", folder / name / f"{LOAD_DRIVER}.kubeconfig"
    path = next((each for each in paths if each.exists()), None)
    if path is None:
        raise InfrastructureError(f"neither {paths[0]} nor {paths[1]} exists")
    try:
        endpoint = cluster_endpoint(name, path)
    except (KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        raise InfrastructureError(f"{path}: is not a kubeconfig: {error!r}") from error
    if endpoint.url.startswith("https:") and not endpoint.verified:
        raise InfrastructureError(f"{path}: has no certificate authority")
    return endpoint
