"""An invalid member Secret runs nothing here, and blocks no other member."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from bigfleet.api.auth.certificates import Authority, certificate_pem, key_pem
from bigfleet.fedhpa.members.registry import SECRETS, member_secret
from bigfleet.kube.client import InlineAccess, KubeClient
from loaddriver.substrates.base import Cluster
from tests.support.fedhpa_fleet import (
    Fleet,
    autoscaler,
    autoscalers,
    deployment,
    deployments,
    place,
)

pytestmark = pytest.mark.cluster


def _changed(secret: dict[str, Any], user: dict[str, Any]) -> str:
    """The member's own kubeconfig with another user."""
    content = yaml.safe_load(secret["stringData"]["kubeconfig"])
    content["users"][0]["user"] = user
    return yaml.safe_dump(content)


async def _put(federated: Fleet, name: str, kubeconfig: str) -> None:
    """Replace the member's kubeconfig, as `kubectl apply` would."""
    await federated.host.patch(f"{SECRETS}/{name}", {"stringData": {"kubeconfig": kubeconfig}})


async def _why(federated: Fleet, where: str, name: str, word: str = "") -> str:
    """What the autoscaler's status says of the Secret `name`, once `word` is part of it."""
    async with asyncio.timeout(60):
        while True:
            said = (await federated.condition(where, "ClustersReachable")).get("message", "")
            for part in said.split("; "):
                if f"Secret bigfleet-fedhpa/{name}" in part and word in part:
                    return part
            await asyncio.sleep(0.1)


async def test_a_command_in_a_kubeconfig_is_never_run(federated: Fleet, tmp_path: Path) -> None:
    """The member is rejected by name, the other one is served, and a fixed Secret is accepted."""
    mark = tmp_path / "was-run"
    args = ["-c", f"id > {mark}"]
    api = "client.authentication.k8s.io/v1"
    user = {"exec": {"apiVersion": api, "command": "/bin/sh", "args": args}}
    await _put(federated, "east", _changed(federated.secrets["east"], user))
    async with place(federated, "odd-exec") as where, federated.federation():
        await federated.host.create(deployments(where), deployment())
        await federated.host.create(autoscalers(where), autoscaler(2, 10))
        await federated.until_shares(where, {"west": (2, 10)})
        said = await _why(federated, where, "east")
        assert "'user: exec' is not allowed" in said
        assert not mark.exists()
        await _put(federated, "east", federated.secrets["east"]["stringData"]["kubeconfig"])
        await federated.until_condition(where, "ClustersReachable", "True")


async def test_a_member_that_becomes_invalid_keeps_its_share_and_blocks_no_other(
    federated: Fleet,
) -> None:
    """Also each kind of oddity in turn, and the Secrets that were there before the start."""
    await federated.host.create(SECRETS, member_secret("antlers", "a: 2024-13-45"))
    try:
        async with place(federated, "odd-later") as where, federated.federation():
            await federated.host.create(deployments(where), deployment())
            await federated.host.create(autoscalers(where), autoscaler(2, 10))
            await federated.until_shares(where, {"east": (1, 5), "west": (1, 5)})
            await _why(federated, where, "antlers", "is not a kubeconfig")
            for text, word in (
                ("[" * 20_000, "is not a kubeconfig"),
                (_changed(federated.secrets["east"], {"tokenFile": "/etc/passwd"}), "tokenFile"),
                ("a: &a [*a]", "unconstructable"),
            ):
                await _put(federated, "east", text)
                await _why(federated, where, "east", word)
            bounds = {"spec": {"maxReplicas": 12}}
            await federated.host.patch(f"{autoscalers(where)}/web", bounds)
            await federated.until_shares(where, {"east": (1, 5), "west": (1, 7)})
    finally:
        await federated.leave("antlers")


async def test_a_member_that_refuses_its_objects_is_unreachable_and_blocks_no_other(
    federated: Fleet, federated_clusters: dict[str, Cluster]
) -> None:
    """Its API server is ready, but the Secret's user may list nothing there."""
    recorder = yaml.safe_load(federated_clusters["east"].kubeconfigs["recorder"].read_text())
    stranger = recorder["users"][0]["user"]
    await _put(federated, "east", _changed(federated.secrets["east"], stranger))
    async with place(federated, "odd-refused") as where, federated.federation():
        await federated.host.create(deployments(where), deployment())
        await federated.host.create(autoscalers(where), autoscaler(2, 10))
        await federated.until_shares(where, {"west": (2, 10)})
        told = await federated.until_condition(where, "ClustersReachable", "False")
        assert "east cannot be watched: GET" in told["message"]
        assert "403" in told["message"]
        await _put(federated, "east", federated.secrets["east"]["stringData"]["kubeconfig"])
        await federated.until_condition(where, "ClustersReachable", "True")


@asynccontextmanager
async def _redirecting(folder: Path, target: str) -> AsyncIterator[InlineAccess]:
    """A server that sends each of its clients to `target`, and the access to it."""
    authority = Authority.create("odd", timedelta(days=1))
    loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate, key = authority.issue("odd", [loopback], timedelta(days=1))
    (folder / "odd.pem").write_bytes(certificate_pem(certificate) + key_pem(key))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "odd.pem")

    async def answer(_: web.Request) -> web.Response:
        raise web.HTTPFound(target)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    ca_pem = certificate_pem(authority.certificate).decode()
    try:
        yield InlineAccess(f"https://127.0.0.1:{runner.addresses[0][1]}", ca_pem, "t")
    finally:
        await runner.cleanup()


async def test_a_member_cannot_lead_its_federation_elsewhere(tmp_path: Path) -> None:
    """A redirect would let a kubeconfig's author reach this machine's plain servers."""
    asked: list[str] = []

    async def hidden(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(text="a secret of the machine")

    app = web.Application()
    app.router.add_get("/{path:.*}", hidden)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        target = f"http://127.0.0.1:{runner.addresses[0][1]}/metadata"
        async with (
            _redirecting(tmp_path, target) as access,
            KubeClient.with_access(access) as client,
        ):
            with pytest.raises(aiohttp.ClientError, match="redirects, which an API server"):
                await client.get("/readyz")
    finally:
        await runner.cleanup()
    assert asked == []


@pytest.mark.parametrize("kind", ["encrypted", "other"])
def test_an_encrypted_key_is_an_error_and_not_a_prompt(kind: str) -> None:
    """OpenSSL would prompt for a passphrase, and block the whole process."""
    authority = Authority.create("odd", timedelta(days=1))
    certificate, key = authority.issue("odd", [x509.DNSName("odd")], timedelta(days=1))
    if kind == "encrypted":
        key_text = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"passphrase"),
        )
    else:
        key_text = key_pem(authority.key)
    pem = certificate_pem(certificate).decode()
    access = InlineAccess("https://h", "", "", pem, key_text.decode())

    async def connect() -> None:
        async with KubeClient.with_access(access):
            pass

    with pytest.raises(ssl.SSLError):
        asyncio.run(connect())
