"""What a member's kubeconfig may contain, and what is rejected."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import yaml

from bigfleet.fedhpa.members.kubeconfig import parse_access
from bigfleet.model.errors import InvalidInput

_CA = "-----BEGIN CERTIFICATE-----\nca\n-----END CERTIFICATE-----\n"
_CERTIFICATE = _CA.replace("ca", "certificate")
_KEY = "-----BEGIN PRIVATE KEY-----\nkey\n-----END PRIVATE KEY-----\n"


def _in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def kubeconfig(cluster: dict[str, Any], user: dict[str, Any], **more: Any) -> str:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
        "current-context": "x",
        "preferences": {},
        **more,
    }
    return yaml.safe_dump(content)


SERVER = {"server": "https://10.0.0.1:6443/k8s/clusters/c-1/"}
TOKEN = {"token": "t.o-k_en"}


def test_inline_credentials_are_read() -> None:
    """Of the current context only; others are ignored."""
    text = kubeconfig(
        {
            **SERVER,
            "certificate-authority-data": _in_base64(_CA),
            "insecure-skip-tls-verify": False,
            "extensions": [{"name": "minikube", "extension": {"version": 1}}],
        },
        {
            "token": "t",
            "client-certificate-data": _in_base64(_CERTIFICATE),
            "client-key-data": _in_base64(_KEY),
        },
        users=[
            {"name": "other", "user": {"exec": {"command": "aws"}}},
            {
                "name": "u",
                "user": {
                    "token": "t",
                    "client-certificate-data": _in_base64(_CERTIFICATE),
                    "client-key-data": _in_base64(_KEY),
                },
            },
        ],
    )
    access = parse_access(text, "w")
    assert access.server == "https://10.0.0.1:6443/k8s/clusters/c-1"
    assert access.ca_pem == _CA
    assert (access.token, access.certificate_pem, access.key_pem) == ("t", _CERTIFICATE, _KEY)


def test_certificates_may_be_wrapped_as_base64_prints_them() -> None:
    text = kubeconfig({**SERVER, "certificate-authority-data": "WRAPPED"}, TOKEN)
    encoded = base64.encodebytes((_CA * 3).encode()).decode().strip()
    folded = encoded.replace("\n", "\n      ")
    assert parse_access(text.replace("WRAPPED", f"|\n      {folded}"), "w").ca_pem == _CA * 3


@pytest.mark.parametrize(
    ("field", "user"),
    [
        ("exec", {"exec": {"apiVersion": "v1", "command": "/bin/sh"}}),
        ("auth-provider", {"auth-provider": {"name": "gcp"}}),
        ("tokenFile", {"tokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token"}),
        ("client-certificate", {"client-certificate": "/etc/kubernetes/pki/admin.crt"}),
        ("client-key", {"client-key": "/etc/kubernetes/pki/admin.key"}),
        ("password", {"username": "root", "password": "root"}),
        ("as", {**TOKEN, "as": "system:admin"}),
        ("client-key-data", {"client-key-data": _in_base64(_KEY)}),
        ("client-key-data", {**TOKEN, "client-key-data": "%%%"}),
        ("client-certificate-data", {"client-certificate-data": _in_base64("no PEM")}),
        ("token", {"token": "a\nHost: elsewhere"}),
        ("token", {"token": ["t"]}),
        ("user", {}),
    ],
)
def test_any_other_way_to_log_in_is_rejected_by_name(field: str, user: dict[str, Any]) -> None:
    """Commands and files would be run and read with the rights of the federation's process."""
    with pytest.raises(InvalidInput, match=rf"Secret a.*\b{field}"):
        parse_access(kubeconfig(SERVER, user), "Secret a")


@pytest.mark.parametrize(
    ("field", "cluster"),
    [
        ("certificate-authority", {**SERVER, "certificate-authority": "/etc/passwd"}),
        ("proxy-url", {**SERVER, "proxy-url": "http://10.0.0.2:3128"}),
        ("tls-server-name", {**SERVER, "tls-server-name": "elsewhere"}),
        ("insecure-skip-tls-verify", {**SERVER, "insecure-skip-tls-verify": True}),
        ("server", {}),
        ("server", {"server": 5}),
        ("server", {"server": {"https": "//h"}}),
        ("server", {"server": "http://169.254.169.254"}),
        ("server", {"server": "https://u:p@h"}),
        ("server", {"server": "https://h:99999"}),
        ("server", {"server": "https://h/?x=1"}),
        ("server", {"server": "https://h/\r\nX: y"}),
        ("server", {"server": "https://[::1"}),
    ],
)
def test_any_other_way_to_the_server_is_rejected_by_name(
    field: str, cluster: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput, match=rf"Secret a.*\b{field}"):
        parse_access(kubeconfig(cluster, TOKEN), "Secret a")


_BOMB = "a: &a {x: 1}\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 20)}]\n"
    for before, name in zip("abcdefghijk", "bcdefghijkl", strict=True)
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- 1",
        "a: 2024-13-45",
        "{",
        "a: !!python/object/apply:os.system [id]",
        "[" * 20_000,
        "x" * 100_000,
        "\x00",
        _BOMB,
        _BOMB + "<<: *l\n",
        "current-context: {}\ncontexts: 5\nclusters: []\nusers: []",
        kubeconfig(SERVER, TOKEN, **{"current-context": "y"}),
        kubeconfig(SERVER, TOKEN, contexts=[{"name": "x", "context": {"cluster": ["c"]}}]),
        kubeconfig(SERVER, TOKEN, contexts=[{"name": "x"}] * 2),
        kubeconfig(SERVER, TOKEN, users=[{"name": "u", "user": None}]),
    ],
)
def test_what_is_no_kubeconfig_is_rejected_at_once(text: str) -> None:
    with pytest.raises(InvalidInput, match="Secret a"):
        parse_access(text, "Secret a")


def test_no_credential_is_quoted() -> None:
    user = {"token": "very secret\n", "client-key-data": "secret"}
    with pytest.raises(InvalidInput) as raised:
        parse_access(kubeconfig(SERVER, user), "Secret a")
    assert "very" not in str(raised.value)
    access = parse_access(kubeconfig(SERVER, TOKEN), "w")
    assert TOKEN["token"] not in repr(access)
