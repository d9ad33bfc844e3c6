"""What a fleet on the wire showed, and the verdict on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from loaddriver.distributions import nearest_rank
from loaddriver.errors import ExitCode
from loaddriver.judge.gates import GateResult, format_number, judge_gates
from loaddriver.profile.gates import Gate
from loaddriver.report.replacing import replace_file
from loaddriver.report.results import SUMMARY

SCHEMA = "wire-1"
# Of this machine's CPU; above it decisions take longer for want of cores.
_OTHERS_SHARE_LIMIT = 0.25


class _Section(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A part of the summary."""


class Distribution(_Section, frozen=True):
    """How values are distributed: quantiles and the largest."""

    count: int
    p50: float
    p99: float
    max: float


class Run(_Section, frozen=True):
    """Which run it was."""

    id: str
    profile: str
    seed: int
    started_unix_seconds: float


class Code(_Section, frozen=True):
    """What was run, and how fast the machine was."""

    revision: str
    dirty: bool | None
    calibration_seconds: float


class FleetSize(_Section, frozen=True):
    """What was played."""

    machines: int
    clusters: int
    needs: int
    shards: int
    coordinators: int


class Fill(_Section, frozen=True):
    """From the first connection until all needs are met; `seconds` is None if that took too long.
    `coldSeconds` are from the start of the shards' processes until they own all machines.
    """

    cold_seconds: float
    seconds: float | None
    machines_in_service: int


class Shards(_Section, frozen=True):
    """In the soak. `cpuCores` are of all shards together, `cycleCpuSeconds` all CPU of a shard for
    each of its cycles, sessions included. Memory is that of the largest, at its peak.
    """

    cycle_seconds: Distribution
    decision_cpu_seconds: Distribution
    cycle_cpu_seconds: float
    cpu_cores: float
    peak_memory_mebibytes: float
    short_at_end: int


class Sessions(_Section, frozen=True):
    """Sessions and roll-ups in the soak. `ended` are those that their operators did not end, other
    than by faults; `rejected` roll-ups were refused, in whole or in part.
    """

    connected: int
    ended: int
    rollups_per_second: float
    rejected: int
    answer_seconds: Distribution


class Changes(_Section, frozen=True):
    """What was done to the fleet. `restartSeconds` are from the start of a shard's process until
    its first decision, `evenSeconds` from a shard's start until it has nine tenths of an even part
    of the domains.
    """

    roles_killed: int
    roles_restarted: int
    shards_joined: int
    restart_seconds: float | None
    even_seconds: float | None


class WireSummary(_Section, frozen=True):
    """summary.json. `cores` are CPU seconds a second in the soak, by process."""

    schema: str
    verdict: str
    exit_code: int
    why: list[str]
    run: Run
    provenance: Code
    fleet: FleetSize
    fill: Fill
    soak_seconds: float
    shards: Shards
    sessions: Sessions
    changes: Changes
    cores: dict[str, float]
    others_cpu_share: float
    gates: list[GateResult] = []

    def lines(self) -> Iterator[str]:
        """The most important of it, in 80 columns."""
        size, shards, sessions = self.fleet, self.shards, self.sessions
        yield (
            f"{size.machines:,} machines, {size.clusters:,} clusters, {size.needs:,} needs, "
            f"{size.shards} shards"
        )
        filled = f"{self.fill.seconds:.0f} s" if self.fill.seconds is not None else "not in time"
        yield (
            f"all machines owned after {self.fill.cold_seconds:.1f} s; filled, "
            f"{self.fill.machines_in_service:,} in service: {filled}"
        )
        yield from _table(
            {
                "cycle, s": shards.cycle_seconds,
                "decision, s of CPU": shards.decision_cpu_seconds,
                "roll-up answered, s": sessions.answer_seconds,
            }
        )
        yield (
            f"a cycle with its sessions: {shards.cycle_cpu_seconds * 1000:.0f} ms of CPU; shards: "
            f"{shards.cpu_cores:.2f} cores"
        )
        yield (
            f"{sessions.rollups_per_second:.0f} roll-ups/s; the largest shard had "
            f"{shards.peak_memory_mebibytes:.0f} MiB"
        )


def _table(rows: dict[str, Distribution]) -> Iterator[str]:
    yield f"  {'':<24}{'p50':>10}{'p99':>10}{'max':>10}{'count':>10}"
    for name, found in rows.items():
        values = (found.p50, found.p99, found.max)
        yield f"  {name:<24}" + "".join(f"{v:>10.3f}" for v in values) + f"{found.count:>10,}"


def distribution_of(values: Iterable[float]) -> Distribution:
    """Quantiles by nearest rank; zeros where there are no values."""
    found = sorted(values)
    if not found:
        return Distribution(count=0, p50=0.0, p99=0.0, max=0.0)
    return Distribution(
        count=len(found),
        p50=nearest_rank(found, 0.5),
        p99=nearest_rank(found, 0.99),
        max=found[-1],
    )


def judged(summary: WireSummary, gates: Sequence[Gate]) -> WireSummary:
    """The summary with its gates and the verdict."""
    results = judge_gates(msgspec.to_builtins(summary), gates)
    missed = [gate.sentence for gate in results if not gate.passed]
    word, code = ("fail", ExitCode.GATE_MISSED) if missed else ("pass", ExitCode.PASS)
    why = missed or [f"All {len(results)} gates hold."]
    if summary.others_cpu_share > _OTHERS_SHARE_LIMIT:
        word, code = "invalid", ExitCode.INVALID_RUN
        share = format_number(100 * summary.others_cpu_share)
        why = [f"Other processes used {share} % of this machine's CPU in the soak."]
    return msgspec.structs.replace(
        summary, verdict=word, exit_code=int(code), why=why, gates=results
    )


def write_summary(folder: Path, summary: WireSummary) -> None:
    """Write summary.json."""
    replace_file(folder / SUMMARY, msgspec.json.format(msgspec.json.encode(summary), indent=1))
