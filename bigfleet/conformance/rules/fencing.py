"""Calls that arrive too late or come from a shard that has been replaced."""

from __future__ import annotations

import itertools

import grpc
import grpc.aio

from bigfleet.api.v1alpha1 import provider_pb2 as wire
from bigfleet.conformance.check import check
from bigfleet.conformance.expectations import expect, expect_rejected_not_stale, expect_stale
from bigfleet.conformance.fenced_client import FencedClient
from bigfleet.conformance.subject import Subject, state_name
from bigfleet.ports.provider import EPOCHS_SKIPPED


@check(
    "fence/stale-sequence",
    "A call whose sequence is not larger than the last one of its epoch is FAILED_PRECONDITION",
)
async def stale_sequence(subject: Subject) -> str:
    """The same sequence and an older one."""
    shard = subject.fenced_client()
    async with subject.unused() as machine:
        await shard.create(machine, sequence=10)
        await expect_stale(shard.create(machine, sequence=10), "sequence 10 after 10")
        await expect_stale(shard.create(machine, sequence=9), "sequence 9 after 10")
    return "10 and 9 after 10: FAILED_PRECONDITION"


@check(
    "fence/stale-epoch",
    "A call with an older epoch is FAILED_PRECONDITION, however large its sequence",
)
async def stale_epoch(subject: Subject) -> str:
    """A replaced shard continues its sequence."""
    shard = subject.fenced_client()
    async with subject.unused() as machine:
        shard.epoch = 5
        await shard.create(machine, sequence=10)
        shard.epoch = 4
        what = "epoch 4 sequence 1000 after epoch 5 sequence 10"
        await expect_stale(shard.create(machine, sequence=1000), what)
    return f"{what}: FAILED_PRECONDITION"


@check(
    "fence/checked-first",
    "A stale call is FAILED_PRECONDITION whatever else is invalid about it, and changes nothing",
)
async def fence_checked_first(subject: Subject) -> str:
    """Stale calls that are also invalid in the machine's state or have an invalid field."""
    shard = subject.fenced_client()
    async with subject.idle(shard) as machine:
        await shard.create(machine, sequence=10)
        await expect_stale(shard.drain(machine, sequence=9), "a stale Drain of an IDLE")
        nowhere = shard.configure(machine, "", b"", sequence=9)
        await expect_stale(nowhere, "a stale Configure without a cluster")
        negative = shard.drain(machine, grace_seconds=-1, sequence=9)
        await expect_stale(negative, "a stale Drain with a negative grace")
        await expect_stale(shard.delete(machine, sequence=9), "a stale Delete")
        after = (await subject.get(machine)).state
        expect(after == wire.IDLE, f"after stale calls it is {state_name(after)}")
    return "four stale calls: FAILED_PRECONDITION"


@check(
    "fence/failed-order-counts",
    "A call that is rejected for another reason still advances the fence: its duplicate is stale",
)
async def failed_order_counts(subject: Subject) -> str:
    """Delete of a CONFIGURED machine, twice."""
    shard = subject.fenced_client()
    async with subject.idle(shard) as machine:
        await subject.configured(shard, machine)
        what = "Delete of a CONFIGURED"
        await expect_rejected_not_stale(shard.delete(machine, sequence=100), what)
        await expect_stale(shard.delete(machine, sequence=100), "its duplicate")
        shard.sequence = itertools.count(101)
    return "its duplicate: FAILED_PRECONDITION"


@check("fence/new-epoch", "A new epoch restarts the sequence and is fenced in turn")
async def new_epoch(subject: Subject) -> str:
    """A restarted shard."""
    shard = subject.fenced_client()
    async with subject.unused() as machine:
        await shard.create(machine, sequence=1000)
        shard.epoch += 1
        await shard.create(machine, sequence=1)
        await expect_stale(shard.create(machine, sequence=1), "the new epoch's 1 again")
    return "epoch 1 sequence 1000, then epoch 2 sequence 1"


@check(
    "fence/per-shard-and-machine",
    "A fencing token affects neither another machine of the shard nor another shard",
)
async def fencing_per_shard_and_machine(subject: Subject) -> str:
    """A large token, then small ones of other machines and shards."""
    shard = subject.fenced_client()
    async with subject.unused(0) as first, subject.unused(1) as second:
        await shard.create(first, sequence=1000)
        await shard.create(second, sequence=1)
        await FencedClient(shard.stub).create(first, sequence=1)
    return f"1000 for {first}, then 1 for {second}, then 1 of another shard"


@check(
    "fence/claimed-epoch",
    "A shard that lost its epoch can claim one far above, and its older ones are "
    "FAILED_PRECONDITION for every machine; or ClaimEpoch is UNIMPLEMENTED",
)
async def claimed_epoch(subject: Subject) -> str:
    """An older and a newer process of one shard, and a machine that neither has used."""
    older = subject.fenced_client()
    older.epoch = 7
    async with subject.unused(0) as first, subject.unused(1) as second:
        await older.create(first)
        newer = FencedClient(older.stub, older.shard_id)
        try:
            epoch = await newer.claim_epoch()
        except grpc.aio.AioRpcError as error:
            expect(error.code() is grpc.StatusCode.UNIMPLEMENTED, f"it is {error.code().name}")
            return "not implemented: a shard that loses its disk needs its epoch set manually"
        skipped = epoch >= 7 + EPOCHS_SKIPPED
        expect(skipped, f"epoch {epoch} was granted to a shard that had used epoch 7")
        await expect_stale(older.create(second), "a call of epoch 7")
        least = 10 * EPOCHS_SKIPPED
        again = await newer.claim_epoch(at_least=least)
        expect(again >= least, f"epoch {again} was granted where at least {least} was requested")
        await newer.create(second)
    return f"epochs {epoch} and {again} after 7; a call of epoch 7: FAILED_PRECONDITION"


@check(
    "fence/reads", "Get and List carry no fence, are never rejected, and do not advance the fence"
)
async def reads(subject: Subject) -> str:
    """Reads between two calls."""
    shard = subject.fenced_client()
    async with subject.unused() as machine:
        await shard.create(machine, sequence=5)
        for _ in range(10):
            await subject.get(machine)
            await subject.listed()
        await shard.create(machine, sequence=6)
    return "20 reads between sequence 5 and 6"
