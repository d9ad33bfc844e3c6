"""An identity is three matching files; a mismatch is reported with a hint."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from bigfleet.api.auth import certificates
from bigfleet.api.auth.certificates import Authority
from bigfleet.api.auth.identity import Identity, IdentityFiles, IdentityReloader, Principal
from bigfleet.model.errors import InvalidInput
from tests.api.identity_rig import identity

HOUR = timedelta(hours=1)


def by_hand(directory: Path, uris: list[str]) -> Identity:
    authority = Authority.create("test", HOUR)
    alternatives = [x509.UniformResourceIdentifier(uri) for uri in uris]
    leaf, key = authority.issue("leaf", alternatives or [x509.DNSName("x")], HOUR)
    directory.mkdir()
    (directory / "tls.crt").write_bytes(certificates.certificate_pem(leaf))
    (directory / "tls.key").write_bytes(certificates.key_pem(key))
    (directory / "ca.crt").write_bytes(certificates.certificate_pem(authority.certificate))
    return Identity(directory)


@pytest.mark.parametrize(
    "name", [Principal("shard", "a"), Principal("cluster", "eu/1"), Principal("admin")]
)
def test_a_name_is_read_as_it_is_written(name: Principal) -> None:
    """The URI carries role and id, and nothing is lost between them."""
    assert Principal.parse(str(name)) == name


@pytest.mark.parametrize(
    "uri", ["", "bigfleet://shard", "bigfleet://shard/", "bigfleet://admin/x", "spiffe://shard/a"]
)
def test_a_uri_that_is_not_a_principal_is_rejected(uri: str) -> None:
    """A role without its id, an id where none belongs, and another scheme are invalid."""
    with pytest.raises(InvalidInput, match="is none of bigfleet://cluster/ID"):
        Principal.parse(uri)


@pytest.mark.parametrize("uris", [[], ["bigfleet://shard/a", "bigfleet://admin"]])
def test_a_certificate_names_exactly_one_caller(tmp_path: Path, uris: list[str]) -> None:
    """With two names it would be ambiguous which of them counts."""
    with pytest.raises(InvalidInput, match=f"names {len(uris)} URIs .* exactly one"):
        by_hand(tmp_path / "i", uris).load()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """The error names the missing file and the command that creates such a directory."""
    own = identity(tmp_path, "shard", "a")
    (own.directory / "ca.crt").unlink()
    with pytest.raises(InvalidInput, match=r"ca\.crt.*No such file.*bigfleet certs"):
        own.load()


def test_a_key_of_another_certificate_is_named(tmp_path: Path) -> None:
    """A pair of which only one file was replaced is rejected before use."""
    one, two = identity(tmp_path, "shard", "a"), identity(tmp_path, "shard", "b")
    shutil.copy(two.directory / "tls.key", one.directory / "tls.key")
    with pytest.raises(InvalidInput, match="is not the key of"):
        one.load()


def test_a_process_rejects_the_identity_of_another(tmp_path: Path) -> None:
    """With the wrong directory a process fails at its start, not at its first call."""
    with pytest.raises(InvalidInput, match=r"bigfleet://shard/a, but this process is .*cluster/a"):
        identity(tmp_path, "shard", "a").load_as("cluster", "a")


def test_a_process_refuses_to_start_with_an_expired_identity(tmp_path: Path) -> None:
    """No peer would accept it, and its own error is the clearest."""
    with pytest.raises(InvalidInput, match="expired at"):
        identity(tmp_path, "shard", "a", timedelta(minutes=-1)).load_as("shard", "a")


def test_half_replaced_files_are_waited_out(tmp_path: Path) -> None:
    """While certificate and key do not fit together, the last good pair stays in use."""
    own, other = identity(tmp_path, "shard", "a"), identity(tmp_path / "new", "shard", "a")
    reloader = IdentityReloader(own)
    before = reloader.current()
    shutil.copy(other.directory / "tls.key", own.directory / "tls.key")
    assert reloader.current() is before
    shutil.copy(other.directory / "tls.crt", own.directory / "tls.crt")
    assert reloader.current().certificate == (other.directory / "tls.crt").read_bytes()


@pytest.mark.parametrize(("own", "validity"), [("b", HOUR), ("a", -HOUR)])
def test_a_running_process_keeps_its_principal(
    tmp_path: Path, own: str, validity: timedelta
) -> None:
    """Files of another principal, or expired ones, are rejected as at its start."""
    mine, other = (
        identity(tmp_path, "shard", "a"),
        identity(tmp_path / "new", "shard", own, validity),
    )
    reloader = IdentityReloader(mine)
    before = reloader.current()
    for name in ("ca.crt", "tls.key", "tls.crt"):
        shutil.copy(other.directory / name, mine.directory / name)
    assert reloader.current() is before


def test_files_that_could_not_be_read_once_are_read_with_the_next_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Permissions that are mended change no file; the error is logged once."""
    own, other = identity(tmp_path, "shard", "a"), identity(tmp_path / "new", "shard", "a")
    reloader = IdentityReloader(own)
    before = reloader.current()
    for name in ("ca.crt", "tls.key", "tls.crt"):
        shutil.copy(other.directory / name, own.directory / name)

    def denied(*_: str) -> IdentityFiles:
        raise InvalidInput("identity", "tls.key", "cannot be read (Permission denied)")

    with monkeypatch.context() as patched, caplog.at_level("ERROR"):
        patched.setattr(Identity, "load_as", denied)
        assert [reloader.current(), reloader.current()] == [before, before]
    assert caplog.text.count("Permission denied") == 1
    assert reloader.current().certificate == (other.directory / "tls.crt").read_bytes()


def test_deleted_files_leave_the_last_valid_ones(tmp_path: Path) -> None:
    """A mount that is missing for a moment has no effect."""
    own = identity(tmp_path, "shard", "a")
    reloader = IdentityReloader(own)
    before = reloader.current()
    shutil.rmtree(own.directory)
    assert reloader.current() is before
