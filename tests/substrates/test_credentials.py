from __future__ import annotations

import csv
import ssl
import stat
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from bigfleet.api.auth import certificates
from loaddriver.substrates.credentials import Credentials, issue

SERVER = "https://127.0.0.1:40001"


@pytest.fixture
def issued(tmp_path: Path) -> Credentials:
    return issue(tmp_path / "credentials", "a", SERVER)


def test_nobody_else_can_read_any_credential(issued: Credentials) -> None:
    files = list(issued.token_file.parent.iterdir())
    assert len(files) > 10
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_the_serving_certificate_is_signed_by_the_authority_for_loopback(
    issued: Credentials,
) -> None:
    """A client that verifies strictly accepts it under the address in its kubeconfig."""
    serving = x509.load_pem_x509_certificate(issued.serving_certificate.read_bytes())
    authority = x509.load_pem_x509_certificate(issued.ca_certificate.read_bytes())
    serving.verify_directly_issued_by(authority)
    names = serving.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "127.0.0.1" in map(str, names.get_values_for_type(x509.IPAddress))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(issued.serving_certificate, issued.serving_key)
    client = ssl.create_default_context(cafile=issued.ca_certificate)
    client.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    handshake(client, server)


def test_the_serving_certificate_is_good_for_serving_alone(issued: Credentials) -> None:
    serving = x509.load_pem_x509_certificate(issued.serving_certificate.read_bytes())
    uses = serving.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(uses) == [certificates.SERVER]


def test_the_authority_keeps_no_key_on_disk(issued: Credentials) -> None:
    """Once a cluster is made, nobody can sign anything more for it."""
    authority = x509.load_pem_x509_certificate(issued.ca_certificate.read_bytes())
    for path in issued.ca_certificate.parent.glob("*.key"):
        key = serialization.load_pem_private_key(path.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        assert key.public_key() != authority.public_key()


def test_each_role_has_its_own_token_and_a_kubeconfig_with_it(issued: Credentials) -> None:
    with issued.token_file.open() as file:
        users = {token: (user, groups) for token, user, _, groups in csv.reader(file)}
    assert len(users) == len(issued.tokens) == len(set(issued.tokens.values()))
    for role, path in issued.kubeconfigs.items():
        config = yaml.safe_load(path.read_text())
        assert config["clusters"][0]["cluster"]["server"] == SERVER
        assert config["users"][0]["user"]["token"] == issued.tokens[role]
    assert users[issued.tokens["kube-scheduler"]] == ("system:kube-scheduler", "")
    assert users[issued.tokens["recorder"]] == ("recorder", "")
    assert users[issued.tokens["admin"]] == ("admin", "system:masters")


def test_two_clusters_share_no_secret(tmp_path: Path) -> None:
    one, two = (issue(tmp_path / name, name, SERVER) for name in ("one", "two"))
    assert not set(one.tokens.values()) & set(two.tokens.values())
    assert one.serving_key.read_bytes() != two.serving_key.read_bytes()


def handshake(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    ends = (ssl.MemoryBIO(), ssl.MemoryBIO())
    asking = client.wrap_bio(ends[0], ends[1], server_hostname="127.0.0.1")
    answering = server.wrap_bio(ends[1], ends[0], server_side=True)
    for _ in range(4):
        for side in (asking, answering):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert asking.cipher() is not None
