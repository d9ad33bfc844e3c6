"""The metadata that a shard stores on a machine for its successor."""

from __future__ import annotations

from bigfleet.api.v1alpha1 import provider_pb2 as wire
from bigfleet.conformance.check import check
from bigfleet.conformance.expectations import expect
from bigfleet.conformance.subject import Subject

_METADATA = {
    "bigfleet.lucy.sh/assigned-priority": "-7",
    "unknown/☃": 'a"\\\n\t\0b',
    "long": "x" * 4096,
    "empty": "",
}


@check(
    "metadata/echoed",
    "shard_metadata is returned unchanged by Get and List while the machine is bound, unknown keys "
    "included",
)
async def echoed(subject: Subject) -> str:
    """Arbitrary, long and empty values."""
    shard = subject.fenced_client()
    async with subject.idle(shard) as machine:
        await subject.configure(shard, machine, _METADATA)
        got = await subject.wait_for_state(machine, wire.CONFIGURED)
        listed = {m.id: m for m in (await subject.listed()).machines}
        for call, echo in (("Get", got), ("List", listed[machine])):
            same = dict(echo.shard_metadata) == _METADATA
            wrong = sorted(k for k in _METADATA if echo.shard_metadata.get(k) != _METADATA[k])
            expect(same, f"{call} does not echo {wrong or 'it alone'}")
    return f"{len(_METADATA)} keys"


@check(
    "metadata/of-create",
    "shard_metadata of Create is returned until Configure replaces it, so that a restarted shard "
    "does not create another machine",
)
async def of_create(subject: Subject) -> str:
    """Create with metadata, which the IDLE machine must have."""
    shard = subject.fenced_client()
    async with subject.unused() as machine:
        ack = await shard.create(machine, _METADATA)
        idle = await subject.wait_for_state(machine, wire.IDLE)
        for when, echo in (("ordered", ack.machine), ("bought", idle)):
            wrong = sorted(k for k in _METADATA if echo.shard_metadata.get(k) != _METADATA[k])
            expect(not wrong, f"{when}, it does not echo {wrong}")
        again = await subject.configured(shard, machine)
        expect(not again.shard_metadata, f"bound with {sorted(again.shard_metadata)} of its Create")
        await subject.drained(shard, machine)
    return f"{len(_METADATA)} keys"


@check(
    "metadata/gone-after-drain",
    "shard_metadata and cluster are cleared once a drain has ended, and do not come back",
)
async def gone_after_drain(subject: Subject) -> str:
    """Configure with metadata, drain, and configure without."""
    shard = subject.fenced_client()
    async with subject.idle(shard) as machine:
        await subject.configure(shard, machine, _METADATA)
        await subject.wait_for_state(machine, wire.CONFIGURED)
        idle = await subject.drained(shard, machine)
        left = sorted(idle.shard_metadata)
        expect(not left and not idle.cluster, f"IDLE with {left}, cluster {idle.cluster!r}")
        again = await subject.configured(shard, machine)
        expect(not again.shard_metadata, f"bound anew with {sorted(again.shard_metadata)}")
    return "nothing was left"
