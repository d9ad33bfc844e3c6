"""Reads the inputs of a shard's last decision, and single machines."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

from bigfleet.api.auth.identity import Identity
from bigfleet.audit.observations import DecidedMachine, InspectedMachine, ShardView
from bigfleet.commands import shard_queries
from bigfleet.engine.snapshot import NONE
from bigfleet.model.domain import domain_of
from bigfleet.model.errors import InvalidInput, Unavailable, UnknownObject
from bigfleet.model.machine import MachineState
from bigfleet.model.need import NeedKey
from bigfleet.services.shard.decide.cycle_inputs import CycleInputs
from bigfleet.services.shard.replay import checkpoint

_CONCURRENCY = 16
# Inspecting one takes the shard about a millisecond. Where more differ, there is one cause.
_MOST_INSPECTED = 2000


async def read_shard(
    address: str, identity: Identity | None, domain_keys: Sequence[str]
) -> ShardView:
    """The inputs of the last decision of the shard at `address`; a machine's domain is the first of
    its labels `domain_keys`. BigFleetError if it does not answer, or is of another release.
    """
    if not address:
        raise Unavailable("its address is unknown: it has not reported since its last start")
    content = await shard_queries.ask(address, lambda shard: shard.checkpoint(), identity)
    saved = await asyncio.to_thread(checkpoint.decode, content, f"the checkpoint of {address}")
    return await asyncio.to_thread(view_of, saved, domain_keys)


def view_of(saved: checkpoint.Checkpoint, domain_keys: Sequence[str]) -> ShardView:
    """The view that a checkpoint gives. Pure."""
    fleet, asked = saved.inputs.fleet, saved.inputs.asked
    names = fleet.clusters
    pods: dict[NeedKey, int] = {}
    for need, cluster in zip(asked.needs, asked.cluster.tolist(), strict=True):
        pods[NeedKey(names[cluster], *need.key)] = need.pods
    reported = {names[number] for number in asked.reported}
    return ShardView(
        id=saved.shard_id,
        machines=_machines(saved.inputs, domain_keys),
        pods=pods,
        # Of a cluster that requests too much, only the needs that are served are known.
        reported=reported | {key.cluster for key in pods},
        connected={name for n, name in enumerate(names) if n not in asked.unreachable},
    )


def _machines(inputs: CycleInputs, domain_keys: Sequence[str]) -> Mapping[str, DecidedMachine]:
    fleet, names = inputs.fleet, inputs.fleet.clusters
    domains = [domain_of(flavour.labels, domain_keys) for flavour in fleet.flavours]
    rows = zip(
        inputs.machine_ids,
        fleet.state.tolist(),
        fleet.cluster.tolist(),
        fleet.flavour.tolist(),
        strict=True,
    )
    return {
        bytes(machine_id).decode(): DecidedMachine(
            MachineState(state), "" if cluster == NONE else names[cluster], domains[flavour]
        )
        for machine_id, state, cluster, flavour in rows
        if state
    }


async def inspect_machines(
    address: str, identity: Identity | None, machine_ids: Collection[str]
) -> Mapping[str, InspectedMachine | None]:
    """The machines as the shard at `address` sees them now; None for those that it does not know.
    BigFleetError if it does not answer.
    """
    permits = asyncio.Semaphore(_CONCURRENCY)

    async def read(
        shard: shard_queries.ShardReadClient, machine_id: str
    ) -> InspectedMachine | None:
        async with permits:
            try:
                view = await shard.machine(machine_id)
            except UnknownObject:
                return None
        try:
            state = MachineState(view.machine.state)
        except ValueError:
            hint = "is a state that this release does not know"
            raise InvalidInput(f"machine {machine_id}", int(view.machine.state), hint) from None
        order = view.order or ("eviction" if view.evicting else "")
        return InspectedMachine(state, view.machine.cluster, order, view.not_owned_reason)

    async def run(
        shard: shard_queries.ShardReadClient,
    ) -> Mapping[str, InspectedMachine | None]:
        wanted = sorted(set(machine_ids))[:_MOST_INSPECTED]
        views = await asyncio.gather(*(read(shard, machine_id) for machine_id in wanted))
        return dict(zip(wanted, views, strict=True))

    return await shard_queries.ask(address, run, identity)
