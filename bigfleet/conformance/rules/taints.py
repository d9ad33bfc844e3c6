"""What keeps pods away from a machine for as long as it lives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bigfleet.api.v1alpha1 import provider_pb2 as wire
from bigfleet.api.v1alpha1.capacity_pb2 import Taint
from bigfleet.conformance.check import check
from bigfleet.conformance.expectations import Skipped, expect
from bigfleet.conformance.subject import Subject


@check(
    "taints/kept",
    "A machine's taints are the same in every Get and List of its lifecycle, and its Node has "
    "them; pods that do not tolerate them are not placed on it",
)
async def kept(subject: Subject) -> str:
    """From SPECULATIVE to CONFIGURED and back, for the first machine that has taints."""
    listed = {machine.id: machine for machine in (await subject.listed()).machines}
    tainted = [name for name in await subject.speculative() if listed[name].taints]
    if not tainted:
        raise Skipped("needs a SPECULATIVE machine with taints, ON_DEMAND or SPOT")
    async with subject.using(tainted[0]) as machine:
        expected = _as_set(listed[machine].taints)
        shard = subject.fenced_client()
        await shard.create(machine)
        _same(await subject.wait_for_state(machine, wire.IDLE), expected)
        _same(await subject.configured(shard, machine), expected)
        now = {m.id: m for m in (await subject.listed()).machines}
        _same(now[machine], expected)
        on_node = await subject.cluster.taints(machine)
        if on_node is not None:
            there = {_plain(taint) for taint in on_node}
            expect(expected <= there, f"the Node of {machine} has {there}, not {expected}")
        _same(await subject.drained(shard, machine), expected)
    return f"{machine}: {sorted(expected)}"


def _same(machine: wire.Machine, expected: set[str]) -> None:
    taints = _as_set(machine.taints)
    expect(taints == expected, f"{machine.id} has taints {taints}, and had {expected} before")


def _as_set(taints: Iterable[Taint]) -> set[str]:
    return {_plain({"key": t.key, "value": t.value, "effect": t.effect}) for t in taints}


def _plain(taint: Mapping[str, str]) -> str:
    """The form KEY=VALUE:EFFECT."""
    value = taint.get("value", "")
    return f"{taint['key']}{f'={value}' if value else ''}:{taint['effect']}"
