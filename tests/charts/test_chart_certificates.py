"""Certificates that cert-manager issues for the charts are identities that processes accept."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from bigfleet.api.auth import certificates
from bigfleet.api.auth.certificates import Authority
from bigfleet.api.auth.identity import AUTHORITY, CERTIFICATE, KEY, Identity
from bigfleet.api.transport import SERVER_NAME
from tests.charts.helm_rig import (
    CLUSTER,
    FLEET,
    VALUES,
    Helm,
    Object,
    Replica,
    mounted_identities,
    of_kind,
    replicas,
)
from tests.charts.identities_rig import principal

SIMULATED = (
    "--set-json",
    'identity.certManager={"enabled":true,"issuer":{"name":"fleet"}}',
)
CASES = [
    (FLEET, "fleet-everything", ()),
    (FLEET, "fleet-simulated", SIMULATED),
    (CLUSTER, "cluster-everything", ()),
]
EACH_CASE = pytest.mark.parametrize(
    ("chart", "name", "flags"), CASES, ids=[each[1] for each in CASES]
)


def issued(spec: dict[str, Any], directory: Path) -> Identity:
    """The files that an issuer with a CA writes for a Certificate."""
    authority = Authority.create("issuer", timedelta(days=2))
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(each) for each in spec["uris"]]
    names += [x509.DNSName(each) for each in spec.get("dnsNames", ())]
    leaf, key = authority.issue("leaf", names, timedelta(days=1))
    directory.mkdir()
    (directory / CERTIFICATE).write_bytes(certificates.certificate_pem(leaf))
    (directory / KEY).write_bytes(certificates.key_pem(key))
    (directory / AUTHORITY).write_bytes(certificates.certificate_pem(authority.certificate))
    return Identity(directory)


def own_secret(replica: Replica) -> str:
    return dict(mounted_identities(replica))[replica.flag("--identity")]


@EACH_CASE
def test_each_process_accepts_the_certificate_that_is_requested_for_it(
    helm: Helm, chart: Path, name: str, flags: tuple[str, ...], tmp_path: Path
) -> None:
    """By the Secret that it mounts; a server's is valid for its role's name."""
    objects: list[Object] = helm.template(chart, VALUES / f"{name}.yaml", *flags)
    requested = {
        each["spec"]["secretName"]: each["spec"] for each in of_kind(objects, "Certificate")
    }
    used = {own_secret(each): each for each in replicas(objects) if principal(each)}
    assert set(requested) == set(used)
    for secret, replica in used.items():
        owner = principal(replica)
        assert owner is not None
        pem = issued(requested[secret], tmp_path / secret).load_as(owner.role, owner.id)
        usages = set(requested[secret]["usages"])
        assert "client auth" in usages
        if owner.role != "cluster":
            assert SERVER_NAME.format(role=owner.role) in pem.serves_as
            assert "server auth" in usages


def test_a_coordinators_certificate_is_valid_for_its_peer_address(helm: Helm) -> None:
    """etcd verifies the host of each peer that it dials."""
    objects = helm.template(FLEET, VALUES / "fleet-everything.yaml")
    names = {
        each["metadata"]["name"]: each["spec"]["dnsNames"]
        for each in of_kind(objects, "Certificate")
    }
    [coordinator, *_] = [each for each in replicas(objects) if each.arguments[0] == "coordinator"]
    peers = dict(each.split("=") for each in coordinator.flag("--peers").split(","))
    assert len(peers) == 5
    for pod, address in peers.items():
        assert address.rpartition(":")[0] in names[pod]
