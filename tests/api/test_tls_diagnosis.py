"""A connection that TLS prevents is explained: which side's fault, which file, what to do."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from bigfleet.api.auth.identity import Identity
from bigfleet.api.auth.tls_diagnosis import explain_failure
from tests.api.identity_rig import get, identity, refusal, serving

EXPIRED = timedelta(minutes=-1)


async def sentence(address: str, own: Identity | None, role: str = "provider") -> str:
    error = await refusal(get(address, own, role))
    return await explain_failure(error, address, own, role)


async def test_our_own_expired_certificate_is_named(tmp_path: Path) -> None:
    """The file, whose it is, and that a new one needs no restart."""
    own = identity(tmp_path, "admin", "", EXPIRED)
    async with serving(identity(tmp_path, "provider", "p")) as address:
        message = await sentence(address, own)
    assert f"our own certificate {own.directory / 'tls.crt'} (bigfleet://admin) expired" in message
    assert "no restart is needed" in message


async def test_a_peers_expired_certificate_is_named(tmp_path: Path) -> None:
    """The fault is the peer's, and so is the fix."""
    async with serving(identity(tmp_path, "provider", "p", EXPIRED)) as address:
        message = await sentence(address, identity(tmp_path, "admin"))
    assert message.startswith(f"the certificate of the provider at {address} has expired")


async def test_a_peer_of_another_authority_is_named(tmp_path: Path) -> None:
    """What the peer shows is checked first; our ca.crt is the file to look at."""
    own = identity(tmp_path / "ours", "admin")
    async with serving(identity(tmp_path / "theirs", "provider", "p")) as address:
        message = await sentence(address, own)
    assert f"was not signed by an authority in {own.directory / 'ca.crt'}" in message


async def test_our_certificate_of_another_authority_is_named(tmp_path: Path) -> None:
    """We trust the peer, and it does not trust us."""
    own, ours = identity(tmp_path / "other", "admin"), identity(tmp_path, "admin")
    shutil.copy(ours.directory / "ca.crt", own.directory / "ca.crt")
    async with serving(identity(tmp_path, "provider", "p")) as address:
        message = await sentence(address, own)
    assert f"our certificate {own.directory / 'tls.crt'} (bigfleet://admin)" in message
    assert "the provider's ca.crt" in message


async def test_a_peer_of_another_role_is_named(tmp_path: Path) -> None:
    """Dialling the shard for the provider is a wrong port, and is message to be."""
    async with serving(identity(tmp_path, "shard", "s")) as address:
        message = await sentence(address, identity(tmp_path, "admin"))
    assert message.startswith(f"the server at {address} is not a provider")


async def test_a_plaintext_peer_is_named(tmp_path: Path) -> None:
    """TLS to a plaintext port: start the other side with an identity."""
    async with serving(None) as address:
        message = await sentence(address, identity(tmp_path, "admin"))
    assert message.startswith(f"{address} speaks plaintext, and this side requires TLS")
    assert "--identity DIR" in message


async def test_a_tls_peer_is_named_to_plaintext(tmp_path: Path) -> None:
    """Plaintext to a TLS port: start this side with an identity."""
    async with serving(identity(tmp_path, "provider", "p")) as address:
        message = await sentence(address, None)
    assert message.startswith(f"{address} requires TLS, and this side runs with --insecure")


@pytest.mark.parametrize("secured", [True, False])
async def test_an_unreachable_peer_is_reported_as_by_grpc(tmp_path: Path, secured: bool) -> None:
    """Where no server listens TLS is not the reason, and no time is spent on a handshake."""
    own = identity(tmp_path, "admin") if secured else None
    assert "Connection refused" in await sentence("127.0.0.1:1", own)
