"""Plays a fleet on the wire, from the first process to the verdict."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controlplane.request import Binaries
from loaddriver.errors import InfrastructureError
from loaddriver.record.cpu import RUNNER, windows
from loaddriver.run.fleet_changes import FleetChanges
from loaddriver.run.provenance import ROOT, calibrate, revision_of
from loaddriver.substrates.runlock import RunLock
from loaddriver.wire.fleet import Fleet, operators_of, running_fleet, start, until
from loaddriver.wire.settings import WireProfile
from loaddriver.wire.summary import (
    SCHEMA,
    Changes,
    Code,
    Fill,
    FleetSize,
    Run,
    Sessions,
    Shards,
    WireSummary,
    distribution_of,
    judged,
    write_summary,
)

_MEBIBYTE = 2**20
_TOLD_SECONDS = 10.0
# All needs are met for so long that no machine is on its way any more.
_SETTLED_SECONDS = 5.0
_POLL_SECONDS = 0.25


@dataclass(frozen=True)
class _Soak:
    """What the soak showed."""

    seconds: float
    shards: Shards
    sessions: Sessions
    changes: Changes
    cores: dict[str, float]
    others_share: float


async def play(
    profile: WireProfile,
    environment: Mapping[str, str],
    binaries: Binaries,
    lock: RunLock,
    folder: Path,
    say: Callable[[str], None],
) -> WireSummary:
    """Play a profile to its verdict; raises InfrastructureError if it cannot be played."""
    calibration_seconds, started = calibrate(), time.time()
    async with running_fleet(profile, environment, binaries, lock, folder, say) as fleet:
        fill, soak = await _ended_by_exits(fleet, _play(fleet))
    revision, dirty = revision_of(ROOT)
    summary = WireSummary(
        schema=SCHEMA,
        verdict="",
        exit_code=0,
        why=[],
        run=Run(
            id=folder.name,
            profile=profile.name,
            seed=profile.settings.seed,
            started_unix_seconds=started,
        ),
        provenance=Code(revision=revision, dirty=dirty, calibration_seconds=calibration_seconds),
        fleet=FleetSize(
            machines=fleet.machines,
            clusters=profile.settings.clusters,
            needs=fleet.readings.needs,
            shards=len(fleet.shards),
            coordinators=len(fleet.coordinators),
        ),
        fill=fill,
        soak_seconds=soak.seconds,
        shards=soak.shards,
        sessions=soak.sessions,
        changes=soak.changes,
        cores=soak.cores,
        others_cpu_share=soak.others_share,
    )
    summary = judged(summary, profile.gates)
    write_summary(folder, summary)
    return summary


async def _ended_by_exits(
    fleet: Fleet, work: Coroutine[Any, Any, tuple[Fill, _Soak]]
) -> tuple[Fill, _Soak]:
    """The result of `work`, unless a process ends that should not."""
    playing = asyncio.create_task(work)
    exit_ = asyncio.create_task(fleet.substrate.first_unexpected_exit())
    try:
        await asyncio.wait((playing, exit_), return_when=asyncio.FIRST_COMPLETED)
        if playing.done():
            return playing.result()
        raise InfrastructureError(str(exit_.result()))
    finally:
        for task in (playing, exit_):
            task.cancel()
        await asyncio.gather(playing, exit_, return_exceptions=True)


async def _play(fleet: Fleet) -> tuple[Fill, _Soak]:
    await start(fleet)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(fleet.readings.read(fleet.note_evenness))]
        try:
            await until(
                lambda: fleet.readings.all_decide and fleet.readings.machines == fleet.machines,
                "the shards to own all machines",
            )
            cold_seconds = time.monotonic() - fleet.shards_began_at
            fleet.say(f"{fleet.machines:,} machines are owned after {cold_seconds:.1f} s")
            tasks += [group.create_task(each) for each in operators_of(fleet)]
            fill = await _fill(fleet, cold_seconds)
            soak = await _soak(fleet)
        finally:
            for task in tasks:
                task.cancel()
    return fill, soak


async def _fill(fleet: Fleet, cold_seconds: float) -> Fill:
    """Wait until all clusters are connected and have what they need."""
    begin, clusters = time.monotonic(), fleet.settings.clusters
    met_since, told = 0.0, begin
    while (now := time.monotonic()) < begin + fleet.settings.fill_budget_seconds:
        met = fleet.tally.connected == clusters and not fleet.readings.short
        met_since = (met_since or now) if met else 0.0
        if met_since and now > met_since + _SETTLED_SECONDS:
            break
        if now > told + _TOLD_SECONDS:
            told = now
            fleet.say(
                f"{now - begin:4.0f} s  {fleet.tally.connected:,} of {clusters:,} connected, "
                f"{fleet.readings.in_service:,} machines in service, {fleet.readings.short:,} "
                "needs short"
            )
        await asyncio.sleep(_POLL_SECONDS)
    return Fill(
        cold_seconds=cold_seconds,
        seconds=met_since - begin if met_since else None,
        machines_in_service=fleet.readings.in_service,
    )


async def _soak(fleet: Fleet) -> _Soak:
    """Let demand move and machines fail for as long as the profile says, with its faults."""
    tally, readings, seconds = fleet.tally, fleet.readings, fleet.settings.soak_seconds
    readings.forget_cycles()
    tally.answer_seconds.clear()
    sent, ended, rejected = tally.sent, len(tally.ended), len(tally.rejected)
    before = fleet.cpu.read()
    fleet.begin_losses()
    fleet.soak.set()
    changes = FleetChanges(
        fleet.profile.distinct.settings,
        fleet.substrate,
        fleet.specs,
        fleet.join,
        fleet.coordinators,
    )
    fleet.say(f"soak of {seconds:.0f} s")
    changing = asyncio.create_task(changes.play(fleet.soak, fleet.note))
    done, _ = await asyncio.wait((changing,), timeout=seconds)
    if done:
        changing.result()  # only an error ends it
    changing.cancel()
    await asyncio.gather(changing, return_exceptions=True)
    [cpu] = windows([before, fleet.cpu.read()])
    used = {name: cpu.cores(name) for name in cpu.processes}
    cycles = list(readings.cycles())
    shards = sum(cores for name, cores in used.items() if name.startswith("shard-"))
    peaks = [n for name, n in fleet.cpu.peak_memory_bytes.items() if name.startswith("shard-")]
    return _Soak(
        seconds=seconds,
        shards=Shards(
            cycle_seconds=distribution_of(wall for wall, _ in cycles),
            decision_cpu_seconds=distribution_of(cpu for _, cpu in cycles),
            cycle_cpu_seconds=shards * cpu.seconds / max(1, len(cycles)),
            cpu_cores=shards,
            peak_memory_mebibytes=max(peaks, default=0) / _MEBIBYTE,
            short_at_end=readings.short,
        ),
        sessions=Sessions(
            connected=tally.connected,
            ended=len(tally.ended) - ended,
            rollups_per_second=(tally.sent - sent) / seconds,
            rejected=len(tally.rejected) - rejected,
            answer_seconds=distribution_of(tally.answer_seconds),
        ),
        changes=_changes(fleet, changes),
        cores={("operators" if name == RUNNER else name): cores for name, cores in used.items()},
        others_share=cpu.others_share,
    )


def _changes(fleet: Fleet, changes: FleetChanges) -> Changes:
    at = dict(fleet.happened)
    restarts = [
        first - (at[f"{fault.role} killed"] + fault.down_seconds)
        for fault in fleet.settings.faults
        if fault.role in changes.restarted
        for first in fleet.readings.shards[fault.role].first_cycles[:1]
    ]
    joined = [at[f"{name} has joined"] for name in changes.joined]
    return Changes(
        roles_killed=len(changes.killed),
        roles_restarted=len(changes.restarted),
        shards_joined=len(changes.joined),
        restart_seconds=max(restarts, default=None)
        if len(restarts) == len(fleet.settings.faults)
        else None,
        even_seconds=fleet.even_at - min(joined) if fleet.even_at and joined else None,
    )
