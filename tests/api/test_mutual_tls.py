"""Who is who is settled by certificates on real sockets, in both directions, and renewed live."""

from __future__ import annotations

import asyncio
import socket
import ssl
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from bigfleet.api import transport
from bigfleet.api.auth.identity import Identity
from bigfleet.api.v1alpha1 import provider_pb2
from bigfleet.api.v1alpha1.provider_pb2_grpc import CapacityProviderStub
from bigfleet.model.errors import InvalidInput, Unavailable
from tests.api.identity_rig import create, get, identity, refusal, serving

EXPIRED = timedelta(minutes=-1)


async def test_a_client_of_another_authority_is_not_served(tmp_path: Path) -> None:
    """Certificates of an unknown authority are rejected, whatever they say."""
    stranger = identity(tmp_path / "other", "admin")
    (stranger.directory / "ca.crt").write_bytes(
        (identity(tmp_path, "admin").directory / "ca.crt").read_bytes()
    )
    async with serving(identity(tmp_path, "provider", "p")) as address:
        error = await refusal(get(address, stranger))
    assert error.code() is grpc.StatusCode.UNAVAILABLE


async def test_an_expired_client_is_not_served(tmp_path: Path) -> None:
    """A certificate opens nothing after its time."""
    async with serving(identity(tmp_path, "provider", "p")) as address:
        error = await refusal(get(address, identity(tmp_path, "admin", "", EXPIRED)))
    assert error.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_client_tells_a_servers_role(tmp_path: Path) -> None:
    """A cluster's operator that holds a certificate of the fleet cannot pose as the provider."""
    async with serving(identity(tmp_path, "shard", "s")) as address:
        error = await refusal(get(address, identity(tmp_path, "admin"), "provider"))
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert "Hostname Verification" in (error.details() or "")


async def test_plaintext_does_not_pass_a_tls_port(tmp_path: Path) -> None:
    """Anonymous clients get no answer."""
    async with serving(identity(tmp_path, "provider", "p")) as address:
        assert (await refusal(get(address, None))).code() is grpc.StatusCode.UNAVAILABLE


async def test_renewed_files_are_used_without_a_restart(tmp_path: Path) -> None:
    """Server and open channel go over to a new authority: the old one can be withdrawn at once.
    The channel shows its new certificate in its next call, though its connection still stands.
    """
    server, client = identity(tmp_path, "provider", "p"), identity(tmp_path, "shard", "s")
    async with serving(server) as address, transport.channel(address, client, "provider") as open_:
        stub: Any = CapacityProviderStub(open_)

        async def shown() -> str:
            ref = provider_pb2.MachineRef(id="m")
            machine: provider_pb2.Machine = await stub.Get(ref, timeout=60)
            return machine.host.ref

        before = certificate_of(client)
        assert await shown() == before
        for name, own in (("provider", "p"), ("shard", "s")):
            replace(identity(tmp_path / "new", name, own), identity_at(tmp_path, name, own))
        assert await shown() == certificate_of(client) != before
        of_old = identity(tmp_path / "old", "admin")
        assert (await refusal(get(address, of_old))).code() is grpc.StatusCode.UNAVAILABLE


async def test_a_fleet_changes_its_authority_while_it_runs(tmp_path: Path) -> None:
    """After `new_authority` renewed and not yet renewed processes still trust each other."""
    server, old = identity(tmp_path, "provider", "p"), identity(tmp_path, "shard", "old")
    async with serving(server) as address:
        new = identity(tmp_path, "shard", "new", new_authority=True)
        assert await create(address, new, "new") == "new"
        assert await create(address, old, "old") == "old"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_older_tls_is_not_served(tmp_path: Path, version: ssl.TLSVersion) -> None:
    """A call over TLS 1.2 is rejected; over 1.3 the same bytes are answered."""
    own = identity(tmp_path, "admin").directory
    async with serving(identity(tmp_path, "provider", "p")) as address:
        answer = await asyncio.to_thread(_raw_call, address, own, version)
    served = version is ssl.TLSVersion.TLSv1_3
    assert (b"only TLSv1.3 is served here" in answer) == (not served)


def test_an_address_in_use_is_named(tmp_path: Path) -> None:
    """Two processes on one port: the second reports it."""

    async def listen() -> None:
        with socket.socket() as taken:
            # As our own servers do; the kernel alone would let both listen.
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            with pytest.raises(Unavailable, match=f"cannot listen on {address}"):
                transport.listen(transport.server(), address, identity(tmp_path, "shard", "s"))

    asyncio.run(listen())


async def test_a_server_does_not_start_without_its_files(tmp_path: Path) -> None:
    """It would serve no client, or worse, every client."""
    nothing = Identity(tmp_path)
    with pytest.raises(InvalidInput, match=r"tls\.crt.*cannot be read"):
        transport.listen(transport.server(nothing), "127.0.0.1:0", nothing)


def certificate_of(own: Identity) -> str:
    return (own.directory / "tls.crt").read_text()


def identity_at(out: Path, role: str, own: str) -> Identity:
    return Identity(out / f"{role}-{own}")


def replace(new: Identity, old: Identity) -> None:
    for name in ("ca.crt", "tls.key", "tls.crt"):
        (new.directory / name).replace(old.directory / name)


def _raw_call(address: str, own: Path, version: ssl.TLSVersion) -> bytes:
    """A Get as bytes of HTTP/2, because gRPC cannot be asked for an old TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    context.load_cert_chain(own / "tls.crt", own / "tls.key")
    context.set_alpn_protocols(["h2"])
    host, port = address.rsplit(":", 1)
    with (
        socket.create_connection((host, int(port)), timeout=60) as plain,
        context.wrap_socket(plain) as secured,
    ):
        secured.sendall(_get_request())
        answer = b""
        try:
            while chunk := secured.recv(65536):
                answer += chunk
                if b"grpc-status" in answer:
                    break
        except TimeoutError:
            pass
        return answer


def _get_request() -> bytes:
    def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
        return (
            len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body
        )

    def header(name: str, value: str) -> bytes:
        return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()

    path = "/bigfleet.v1alpha1.CapacityProvider/Get"
    headers = [
        (":method", "POST"),
        (":scheme", "https"),
        (":path", path),
        (":authority", "x"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    ]
    block = b"".join(header(*pair) for pair in headers)
    begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"")
    return begin + frame(1, 4, 1, block) + frame(0, 1, 1, b"\x00\x00\x00\x00\x00")
