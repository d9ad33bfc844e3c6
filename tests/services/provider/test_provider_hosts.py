"""The provider's handling of host outcomes."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

import grpc
import pytest

from bigfleet.api.v1alpha1 import provider_pb2 as wire
from bigfleet.conformance.fenced_client import FencedClient
from bigfleet.conformance.subject import Subject
from bigfleet.ports.host import Boot
from tests.support.providers import SlowHost, provider, settings, subject_of


async def configuring(subject: Subject, shard: FencedClient) -> None:
    """Machine m-0, being configured for a cluster."""
    await shard.create("m-0")
    await subject.wait_for_state("m-0", wire.IDLE)
    await shard.configure("m-0", "c", b"blob", {"key": "value"})


async def settled() -> None:
    """Let every runnable task run."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_configured_means_that_the_node_is_ready(tmp_path: Path) -> None:
    """While the Node is not Ready, the machine is CONFIGURING."""
    host = SlowHost()
    async with provider(settings(tmp_path), host) as channel:
        subject = subject_of(channel)
        await configuring(subject, subject.fenced_client())
        await settled()
        assert (await subject.get("m-0")).state == wire.CONFIGURING
        assert host.booted == [("m-0.2", b"blob")]
        host.ready.set()
        assert (await subject.wait_for_state("m-0", wire.CONFIGURED)).cluster == "c"


async def test_a_machine_that_is_sold_out_fails(tmp_path: Path) -> None:
    """FAILED with the seller's reason and without a cluster; Delete gives the slot back."""
    host = SlowHost(sold_out=True)
    async with provider(settings(tmp_path), host) as channel:
        subject = subject_of(channel)
        shard = subject.fenced_client()
        await shard.create("m-0")
        failed = await subject.wait_for_state("m-0", wire.FAILED)
        assert (failed.last_error, failed.cluster) == ("no m6i.large left", "")
        await shard.delete("m-0")
        await subject.wait_for_state("m-0", wire.SPECULATIVE)


@pytest.mark.parametrize("trouble", ["the bootstrap blob cannot be used", ""])
async def test_a_boot_that_fails_fails_the_machine(trouble: str, tmp_path: Path) -> None:
    """FAILED with the host's reason, switched off, its cluster still named; Delete frees it."""
    host = SlowHost(trouble=trouble)
    async with provider(settings(tmp_path, boot_timeout_seconds=0.05), host) as channel:
        subject = subject_of(channel)
        shard = subject.fenced_client()
        await configuring(subject, shard)
        failed = await subject.wait_for_state("m-0", wire.FAILED)
        assert failed.last_error == (trouble or "not Ready within 0.05 s")
        assert failed.cluster == "c"
        assert host.powered_off == ["m-0"]
        await shard.delete("m-0")
        deleted = await subject.wait_for_state("m-0", wire.SPECULATIVE)
        assert (deleted.last_error, deleted.cluster) == ("", "")


async def test_a_failed_fixed_machine_is_repaired_once_its_node_is_gone(
    tmp_path: Path,
) -> None:
    """It cannot be released; only its provider can report it repaired."""
    host = SlowHost(trouble="the bootstrap blob cannot be used")
    given = settings(tmp_path, repair_seconds=0.05)
    async with provider(given, host) as channel:
        subject = subject_of(channel)
        shard = subject.fenced_client()
        await shard.configure("b-0", "c", b"blob", {"key": "value"})
        assert (await subject.wait_for_state("b-0", wire.FAILED)).cluster == "c"
        host.trouble = ""
        await asyncio.sleep(0.2)
        assert (await subject.get("b-0")).state == wire.FAILED, "its Node is there still"
        host.node_gone.set()
        repaired = await subject.wait_for_state("b-0", wire.IDLE)
        assert (repaired.cluster, repaired.last_error, repaired.host.ref) == ("", "", "b-0")
        assert not repaired.shard_metadata
        host.ready.set()
        await shard.configure("b-0", "d", b"blob", {})
        assert (await subject.wait_for_state("b-0", wire.CONFIGURED)).cluster == "d"


async def test_a_repair_resumes_after_a_restart(tmp_path: Path) -> None:
    """It starts over with the next process; elastic machines stay FAILED until released."""
    host = SlowHost(trouble="no")
    never = settings(tmp_path, repair_seconds=math.inf)
    async with provider(never, host) as channel:
        subject = subject_of(channel)
        shard = subject.fenced_client()
        await configuring(subject, shard)
        await shard.configure("b-0", "c", b"blob", {})
        for name in ("m-0", "b-0"):
            await subject.wait_for_state(name, wire.FAILED)
    host.trouble = ""
    host.node_gone.set()
    async with provider(settings(tmp_path, repair_seconds=0.0), host) as channel:
        subject = subject_of(channel)
        await subject.wait_for_state("b-0", wire.IDLE)
        assert (await subject.get("m-0")).state == wire.FAILED


class _OddHost(SlowHost):
    """A host with a defect that one machine triggers."""

    async def boot(self, boot: Boot, timeout_seconds: float) -> None:
        if boot.blob == b"odd":
            raise ZeroDivisionError("odd")
        await super().boot(boot, timeout_seconds)


async def test_a_defect_at_one_machine_fails_only_that_machine(tmp_path: Path) -> None:
    """A cluster writes its bootstrap blob; no content of it may end the provider."""
    host = _OddHost()
    host.ready.set()
    async with provider(settings(tmp_path), host) as channel:
        subject = subject_of(channel)
        shard = subject.fenced_client()
        await shard.create("m-0")
        await subject.wait_for_state("m-0", wire.IDLE)
        await shard.configure("m-0", "c", b"odd", {})
        assert "ZeroDivisionError" in (await subject.wait_for_state("m-0", wire.FAILED)).last_error
        await shard.create("m-1")
        await subject.wait_for_state("m-1", wire.IDLE)


async def test_a_drain_waits_for_the_node_to_go(tmp_path: Path) -> None:
    """If the Node is removed within the grace period, nothing is switched off."""
    host = SlowHost()
    host.ready.set()
    async with provider(settings(tmp_path), host) as channel:
        subject = subject_of(channel)
        shard = subject.fenced_client()
        await configuring(subject, shard)
        await subject.wait_for_state("m-0", wire.CONFIGURED)
        await shard.drain("m-0", grace_seconds=2**62)
        await settled()
        draining = await subject.get("m-0")
        assert draining.state == wire.DRAINING
        assert dict(draining.shard_metadata) == {"key": "value"}
        host.node_gone.set()
        await subject.wait_for_state("m-0", wire.IDLE)
        assert not host.powered_off


async def test_a_drain_ends_with_its_grace(tmp_path: Path) -> None:
    """A Node that stays is switched off, and its machine is IDLE."""
    host = SlowHost()
    host.ready.set()
    async with provider(settings(tmp_path), host) as channel:
        subject = subject_of(channel)
        shard = subject.fenced_client()
        await configuring(subject, shard)
        await subject.wait_for_state("m-0", wire.CONFIGURED)
        await shard.drain("m-0", grace_seconds=0)
        await subject.wait_for_state("m-0", wire.IDLE)
        assert host.powered_off == ["m-0"]


async def test_a_drain_that_cannot_be_watched_fails(tmp_path: Path) -> None:
    """The machine is not reported IDLE while its Node may be running."""
    host = SlowHost()
    host.ready.set()
    async with provider(settings(tmp_path), host) as channel:
        subject = subject_of(channel)
        shard = subject.fenced_client()
        await configuring(subject, shard)
        await subject.wait_for_state("m-0", wire.CONFIGURED)
        host.trouble = "no such cluster"
        await shard.drain("m-0", grace_seconds=60)
        assert (
            await subject.wait_for_state("m-0", wire.FAILED)
        ).last_error == "m-0: no such cluster"


async def test_an_interrupted_boot_is_resumed_by_the_next_process(tmp_path: Path) -> None:
    """The same operation with the same blob."""
    given = settings(tmp_path)
    async with provider(given, SlowHost()) as channel:
        subject = subject_of(channel)
        await configuring(subject, subject.fenced_client())
    host = SlowHost()
    async with provider(given, host) as channel:
        subject = subject_of(channel)
        host.ready.set()
        assert (await subject.wait_for_state("m-0", wire.CONFIGURED)).cluster == "c"
        assert host.booted == [("m-0.2", b"blob")]


def _fields(**changes: object) -> dict[str, object]:
    """An order's fields, with changes."""
    return {"machine_id": "m-0", "shard_id": "s", "shard_epoch": 1, "sequence_number": 1} | changes


@pytest.mark.parametrize(
    ("call", "request_", "code", "said"),
    [
        ("Create", wire.CreateRequest, "INVALID_ARGUMENT", "m-0: shard_id: '' is empty"),
        ("Configure", wire.ConfigureRequest, "INVALID_ARGUMENT", "m-0: cluster_id: '' is empty"),
        ("Drain", wire.DrainRequest, "INVALID_ARGUMENT", "grace_period_seconds: -1 is negative"),
        ("Delete", wire.DeleteRequest, "ABORTED", "machine b-0 is IDLE, which does not allow"),
        ("List", wire.ListFilter, "INVALID_ARGUMENT", "max_results: -1 is negative"),
        ("Get", wire.MachineRef, "NOT_FOUND", "machine '' is not known"),
    ],
)
async def test_an_error_names_machine_and_field(
    call: str, request_: type, code: str, said: str, tmp_path: Path
) -> None:
    """Each with its gRPC code, the machine and the field."""
    changes: dict[str, dict[str, object]] = {
        "Create": _fields(shard_id=""),
        "Configure": _fields(),
        "Drain": _fields(grace_period_seconds=-1),
        "Delete": _fields(machine_id="b-0"),
        "List": {"max_results": -1},
        "Get": {},
    }
    async with provider(settings(tmp_path)) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await getattr(subject_of(channel).stub, call)(request_(**changes[call]))
    assert refused.value.code().name == code
    assert said in (refused.value.details() or "")
