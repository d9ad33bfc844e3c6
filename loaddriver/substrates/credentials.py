"""Credentials of a temporary control plane: certificates, keys, tokens, kubeconfigs.

They are created for each cluster in the run's data directory, with mode 0600, and are removed with
it.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from bigfleet.api.auth import certificates
from bigfleet.api.auth.certificates import Authority, PrivateKey, certificate_pem, key_pem

# Longer than any run; certificates are removed with the data directory.
_VALIDITY = timedelta(days=30)


@dataclass(frozen=True)
class Identity:
    """A client: its role in the harness, its user name and its groups."""

    role: str
    user: str
    groups: tuple[str, ...] = ()


FRONT_PROXY = "front-proxy-client"
LOAD_DRIVER = "load-driver"
"""Who writes the load: what it has written is counted by this name."""
FEDERATION = "bigfleet-fedhpa"
HEALTH_CHECK = Identity("substrate-check", "substrate-check", ("system:masters",))

IDENTITIES = (
    Identity("admin", "admin", ("system:masters",)),
    HEALTH_CHECK,
    Identity("kube-controller-manager", "system:kube-controller-manager"),
    Identity("kube-scheduler", "system:kube-scheduler"),
    *(
        Identity(name, name)
        for name in (
            "kwok",
            "metrics-server",
            "bigfleet-operator",
            "bigfleet-pod-controller",
            FEDERATION,
            LOAD_DRIVER,
            "recorder",
            "fake-host",
            "karpenter",
        )
    ),
)


@dataclass(frozen=True)
class FrontProxy:
    """The front proxy credentials, by which extension API servers trust the API server."""

    ca_certificate: Path
    certificate: Path
    key: Path


@dataclass(frozen=True)
class Credentials:
    """Credential files of a cluster; `tokens` and `kubeconfigs` are keyed by role."""

    ca_certificate: Path
    serving_certificate: Path
    serving_key: Path
    service_account_public_key: Path
    service_account_private_key: Path
    front_proxy: FrontProxy
    token_file: Path
    tokens: Mapping[str, str]
    kubeconfigs: Mapping[str, Path]


@dataclass(frozen=True)
class Tokens:
    """The bearer tokens of a cluster by role, and its API server's token file."""

    file: Path
    by_role: Mapping[str, str]


def issue(directory: Path, cluster: str, api_server: str, hosts: Sequence[str] = ()) -> Credentials:
    """Write all credentials of a cluster; `api_server` is the URL for kubeconfigs.

    `hosts` are further names under which its API server is reached.
    """
    tokens = issue_tokens(directory)
    authority = Authority.create(f"scaletest {cluster}", _VALIDITY)
    serving, serving_key = _serving_certificate(authority, hosts)
    account_key = ec.generate_private_key(ec.SECP256R1())
    ca_path = _write(directory / "ca.crt", certificate_pem(authority.certificate))
    return Credentials(
        ca_certificate=ca_path,
        serving_certificate=_write(directory / "serving.crt", certificate_pem(serving)),
        serving_key=_write(directory / "serving.key", key_pem(serving_key)),
        service_account_public_key=_write(
            directory / "service-account.pub", _public_pem(account_key)
        ),
        service_account_private_key=_write(directory / "service-account.key", key_pem(account_key)),
        front_proxy=_front_proxy(directory, cluster),
        token_file=tokens.file,
        tokens=tokens.by_role,
        kubeconfigs=write_kubeconfigs(directory, cluster, api_server, ca_path, tokens),
    )


def issue_tokens(directory: Path) -> Tokens:
    """Create the directory and a token for each identity."""
    directory.mkdir(mode=0o700, parents=True)
    tokens = {identity.role: secrets.token_urlsafe(24) for identity in IDENTITIES}
    return Tokens(_write(directory / "tokens.csv", _token_lines(tokens)), tokens)


def write_kubeconfigs(
    directory: Path, cluster: str, api_server: str, ca: Path, tokens: Tokens
) -> dict[str, Path]:
    """Write a kubeconfig for each identity, by role; they refer to the CA's file."""
    authority = {"certificate-authority": str(ca)}
    return {
        role: _write(
            directory / f"{role}.kubeconfig", kubeconfig(cluster, api_server, authority, token)
        )
        for role, token in tokens.by_role.items()
    }


def _front_proxy(directory: Path, cluster: str) -> FrontProxy:
    """Create the front proxy's own CA: its certificates allow impersonation of any user."""
    authority = Authority.create(f"scaletest {cluster} front proxy", _VALIDITY)
    names = [x509.DNSName(FRONT_PROXY)]
    certificate, key = authority.issue(FRONT_PROXY, names, _VALIDITY, [certificates.CLIENT])
    ca = certificate_pem(authority.certificate)
    return FrontProxy(
        ca_certificate=_write(directory / "front-proxy-ca.crt", ca),
        certificate=_write(directory / "front-proxy.crt", certificate_pem(certificate)),
        key=_write(directory / "front-proxy.key", key_pem(key)),
    )


def _serving_certificate(
    authority: Authority, hosts: Sequence[str]
) -> tuple[x509.Certificate, PrivateKey]:
    names = [
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        x509.DNSName("localhost"),
        x509.DNSName("kubernetes.default.svc"),
        *(certificates.host_name(host) for host in hosts),
    ]
    return authority.issue("localhost", names, _VALIDITY, [certificates.SERVER])


def _token_lines(tokens: Mapping[str, str]) -> bytes:
    lines = [
        f'{tokens[identity.role]},{identity.user},{identity.role},"{",".join(identity.groups)}"\n'
        for identity in IDENTITIES
    ]
    return "".join(lines).encode()


def kubeconfig(cluster: str, api_server: str, authority: Mapping[str, str], token: str) -> bytes:
    """A kubeconfig's text; `authority` has the CA's file or its data."""
    context = {"cluster": cluster, "user": "this"}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": cluster, "cluster": {"server": api_server, **authority}}],
            "users": [{"name": "this", "user": {"token": token}}],
            "contexts": [{"name": cluster, "context": context}],
            "current-context": cluster,
        }
    ).encode()


def _public_pem(key: PrivateKey) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _write(path: Path, content: bytes) -> Path:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    return path
