"""`bigfleet certs` makes identities for test fleets, renews them, and changes their authority."""

from __future__ import annotations

import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from cryptography import x509

from bigfleet.api.auth import issuing
from bigfleet.api.auth.identity import Identity, Principal
from bigfleet.model.errors import InvalidInput
from tests.api.identity_rig import DAY

SHARD = Principal("shard", "a")


def certs(out: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bigfleet", "certs", "--out", str(out), *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_makes_an_identity_for_each_name(tmp_path: Path) -> None:
    """Those requested, an admin, and a readonly one; each line has the name and directory."""
    done = certs(tmp_path, "--shard", "a", "b", "--cluster", "blue", "--provider", "kwok")
    assert done.returncode == 0, done.stderr
    made = dict(line.split("\t") for line in done.stdout.splitlines())
    assert {uri.removeprefix("bigfleet://") for uri in made} == {
        "shard/a", "shard/b", "cluster/blue", "provider/kwok", "admin", "readonly"
    }  # fmt: skip
    for uri, directory in made.items():
        assert str(Identity(Path(directory)).load().name) == uri


@pytest.mark.parametrize("days", ["nan", "inf", "1e9", "0", "-1"])
def test_a_validity_that_no_certificate_can_have_is_named(tmp_path: Path, days: str) -> None:
    """Nothing is made."""
    done = certs(tmp_path / "ids", f"--days={days}")
    assert done.returncode == 2
    assert done.stderr.startswith("bigfleet certs: --days: ")
    assert not (tmp_path / "ids").exists()


def test_coordinators_of_several_hosts_have_certificates_for_them(tmp_path: Path) -> None:
    """etcd verifies the host by which it reaches a peer; nobody else's certificate has one."""
    done = certs(tmp_path, "--coordinator", "a", "--shard", "s", "--host", "eu-1", "10.0.0.7")
    assert done.returncode == 0, done.stderr
    named = {
        role: x509.load_pem_x509_certificate((tmp_path / role / "tls.crt").read_bytes())
        .extensions.get_extension_for_class(x509.SubjectAlternativeName)
        .value
        for role in ("coordinator-a", "shard-s")
    }
    hosts = (x509.DNSName("eu-1"), x509.IPAddress(IPv4Address("10.0.0.7")))
    assert all(host in named["coordinator-a"] for host in hosts)
    assert not any(host in named["shard-s"] for host in hosts)


def test_only_the_owner_can_read_a_key(tmp_path: Path) -> None:
    """Whoever has a key can act as its principal; whoever has the authority's, as any."""
    issuing.issue(tmp_path, [SHARD], DAY)
    keys = [*tmp_path.glob("*/tls.key"), *tmp_path.glob("*/ca.key")]
    assert len(keys) == 2
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}


def test_only_servers_certificates_may_serve_and_only_as_their_role(tmp_path: Path) -> None:
    """A cluster's certificate is valid for no server name, a shard's for shards alone."""
    made = issuing.issue(tmp_path, [SHARD, Principal("cluster", "blue"), Principal("admin")], DAY)
    serves = {name.role: own.load().serves_as for name, own in made.items()}
    assert serves == {"shard": ("shard.bigfleet.internal",), "cluster": (), "admin": ()}


def test_renewal_keeps_the_authority(tmp_path: Path) -> None:
    """A renewed certificate is trusted by all who trusted the old one, and lives longer."""
    before = issuing.issue(tmp_path, [SHARD], DAY)[SHARD].load()
    after = issuing.issue(tmp_path, [SHARD], 2 * DAY)[SHARD].load()
    assert after.authority == before.authority
    assert after.expires > before.expires
    assert after.expires - datetime.now(UTC) > timedelta(hours=47)


def test_a_new_authority_keeps_trust_in_the_one_before_only(tmp_path: Path) -> None:
    """Two changes later the first is forgotten, everywhere."""
    own = issuing.issue(tmp_path, [SHARD], DAY)[SHARD]
    first = own.load().authority
    issuing.issue(tmp_path, [], DAY, new_authority=True)
    assert first in own.load().authority
    issuing.issue(tmp_path, [], DAY, new_authority=True)
    assert first not in own.load().authority
    assert own.load().authority.count(b"BEGIN CERTIFICATE") == 2


@pytest.mark.parametrize("own", ["a/b", "..", '"', "\n"])
def test_an_id_that_cannot_be_a_directory_is_rejected(tmp_path: Path, own: str) -> None:
    """Nothing is written outside of the directory that was given."""
    with pytest.raises(InvalidInput, match="cannot be part of a directory's name"):
        issuing.issue(tmp_path / "out", [Principal("shard", own)], DAY)
    assert not (tmp_path / "out").exists()


def test_an_authority_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """Exit code 2 and the file, not a traceback."""
    certs(tmp_path)
    (tmp_path / "authority" / "ca.key").write_text("nonsense")
    done = certs(tmp_path)
    assert done.returncode == 2
    assert "ca.key" in done.stderr
    assert "Traceback" not in done.stderr
