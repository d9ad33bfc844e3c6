"""What a release's pods are told of its API servers."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pytest_asyncio
import yaml

from bigfleet.kube.client import NOT_FOUND, ApiError, KubeClient
from loaddriver.substrates.credentials import FEDERATION
from loaddriver.substrates.pods.places import ClusterPlace, Places
from loaddriver.substrates.pods.prepare import prepare
from loaddriver.substrates.pods.substrate import IDENTITIES


class Store(KubeClient):
    """A cluster that keeps Secrets."""

    def __init__(self) -> None:
        self.secrets: dict[str, Any] = {}

    async def get(self, path: str, *_: Any, **__: Any) -> bytes:
        if "/configmaps/" in path:
            return json.dumps({"metadata": {"name": "places", "uid": "1"}}).encode()
        name = path.rpartition("/")[2]
        if name not in self.secrets:
            raise ApiError(f"GET {path}", NOT_FOUND, "NotFound", "no such Secret")
        return json.dumps(self.secrets[name]).encode()

    async def create(self, path: str, body: Any, *_: Any, **__: Any) -> bytes:
        assert path.endswith("/secrets")
        self.secrets[body["metadata"]["name"]] = body
        return b"{}"


def place(name: str, proxy: int = 0) -> ClusterPlace:
    host = f"st-{name}.st.svc"
    url = f"https://{host}:6443"
    return ClusterPlace(name, "pod", host, url, "files", f"st-{name}", f"st-{name}-access", proxy)


@pytest_asyncio.fixture
async def store() -> Store:
    """A release with one cluster and a federation, prepared."""
    places = Places("st", "places", (place("c1"),), {}, (), "ca", "token", {}, place("host", 7443))
    made = Store()
    await prepare(made, places)
    return made


def server(store: Store, secret: str, identity: str) -> str:
    text = store.secrets[secret]["data"][f"{identity}.kubeconfig"]
    found: str = yaml.safe_load(b64decode(text))["clusters"][0]["cluster"]["server"]
    return found


async def test_a_cluster_is_reached_by_its_host_as_whomever(store: Store) -> None:
    servers = {server(store, "st-c1-access", each) for each in IDENTITIES}
    assert servers == {"https://st-c1.st.svc:6443"}


async def test_within_a_nested_cluster_nothing_looks_up_a_name(store: Store) -> None:
    """The kubelet rewrites a pod's hosts file whenever one of its containers starts: a lookup of
    localhost by another one then finds none, and kube-controller-manager ends.
    """
    identities = ("kube-controller-manager", "kube-scheduler", "kwok", "bigfleet-operator")
    assert {server(store, "st-c1", each) for each in identities} == {"https://127.0.0.1:6443"}


async def test_the_federation_alone_reaches_its_own_through_the_runner(store: Store) -> None:
    """Where the way can be cut; members are joined by the runner, with its own proxies."""
    assert server(store, "st-host-access", FEDERATION) == "https://127.0.0.1:7443"
    assert server(store, "st-host-access", "admin") == "https://st-host.st.svc:6443"
