"""Reads what each container of a release used: CPU and memory, as its own metrics say."""

from __future__ import annotations

import asyncio
import logging
import ssl
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import urlencode

import aiohttp
import yaml

from bigfleet.kube.client import CONNECTION_ERRORS
from loaddriver.process_counters import NAMES, ProcessCounters, Readings, counters_of
from loaddriver.substrates.pods.control_plane import (
    CONTROLLER_MANAGER_PORT,
    ETCD_METRICS_PORT,
    KUBELET_PORT,
    METRICS_SERVER_PORT,
    SCHEDULER_PORT,
)
from loaddriver.substrates.pods.places import ClusterPlace, RolePlace

_LOG = logging.getLogger(__name__)
# A busy API server takes long to write megabytes of metrics; a process may just be replaced.
_PATIENCE_SECONDS = 30.0
_RETRY_INTERVAL_SECONDS = 1.0
_AT_ONCE = 16


@dataclass(frozen=True)
class Source:
    """Where a component serves its metrics, with a certificate of the authority of `kubeconfig`;
    an API server wants its token too. A run survives the end of one that is `replaceable`.
    """

    url: str
    kubeconfig: Path | None = None
    wants_token: bool = False
    replaceable: bool = False


def api_server_sources(place: ClusterPlace, kubeconfig: Path) -> dict[str, Source]:
    """The sources of an API server and its etcd."""
    return {
        f"{place.name}/etcd": Source(f"http://{place.host}:{ETCD_METRICS_PORT}/metrics"),
        f"{place.name}/kube-apiserver": Source(
            f"{place.api_server}/metrics", kubeconfig, wants_token=True
        ),
    }


def cluster_sources(
    place: ClusterPlace, kubeconfig: Path, *, resource_metrics: bool
) -> dict[str, Source]:
    """The sources of a whole control plane.

    No token is sent to those that would have the API server review it: that counts as a write.
    """
    ports = {
        "kube-controller-manager": CONTROLLER_MANAGER_PORT,
        "kube-scheduler": SCHEDULER_PORT,
        **({"metrics-server": METRICS_SERVER_PORT} if resource_metrics else {}),
    }
    return {
        **api_server_sources(place, kubeconfig),
        **{
            f"{place.name}/{name}": Source(f"https://{place.host}:{port}/metrics", kubeconfig)
            for name, port in ports.items()
        },
        f"{place.name}/kwok": Source(f"http://{place.host}:{KUBELET_PORT}/metrics"),
    }


def role_source(place: RolePlace) -> Source:
    """The source of a role. One of BigFleet's is asked for these alone, as all its metrics would
    take it long to write.
    """
    query = urlencode([("name[]", name) for name in NAMES])
    address = place.metrics or place.observe
    return Source(f"http://{address}/metrics?{query}", replaceable=place.restarts_allowed)


class CounterReader:
    """Reads the counters of all components that were added."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._sources: dict[str, Source] = {}
        self._few = asyncio.Semaphore(_AT_ONCE)

    def add(self, sources: Mapping[str, Source]) -> None:
        """Read these from now on, too, by component."""
        self._sources.update(sources)

    async def read(self, *, only_replaceable: bool) -> Readings:
        """The counters by component; None of one that does not tell.

        Those that may be replaced are read again soon, so that they are not waited for.
        """
        chosen = [
            name
            for name, source in self._sources.items()
            if source.replaceable or not only_replaceable
        ]
        patience = _RETRY_INTERVAL_SECONDS if only_replaceable else _PATIENCE_SECONDS
        found = await asyncio.gather(*(self._counters(name, patience) for name in chosen))
        return dict(zip(chosen, found, strict=True))

    async def _counters(self, name: str, patience: float) -> ProcessCounters | None:
        """Those of a component, which is asked until it tells."""
        trouble = "no answer"
        try:
            async with self._few, asyncio.timeout(patience):
                while True:
                    try:
                        return counters_of(await self._metrics(self._sources[name]))
                    except (ValueError, *CONNECTION_ERRORS) as error:
                        trouble = str(error) or repr(error)
                    await asyncio.sleep(_RETRY_INTERVAL_SECONDS)
        except TimeoutError:
            _LOG.warning("cannot read what %s used: %s", name, trouble)
            return None

    async def _metrics(self, source: Source) -> bytes:
        """Raises CONNECTION_ERRORS, also if it refuses."""
        # Compressing them would cost the component more than sending them.
        headers = {"Accept-Encoding": "identity"}
        authority: ssl.SSLContext | bool = True
        if source.kubeconfig is not None:
            authority, token = _access(source.kubeconfig)
            if source.wants_token:
                headers["Authorization"] = f"Bearer {token}"
        async with self._session.get(source.url, headers=headers, ssl=authority) as response:
            response.raise_for_status()
            return await response.read()


@cache
def _access(kubeconfig: Path) -> tuple[ssl.SSLContext, str]:
    """The authority and the token in a kubeconfig of the chart."""
    content = yaml.safe_load(kubeconfig.read_text())
    authority = b64decode(content["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
    return ssl.create_default_context(cadata=authority), content["users"][0]["user"]["token"]
