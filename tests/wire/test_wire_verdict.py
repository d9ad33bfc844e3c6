"""A fleet's verdict follows from its gates, unless the machine was not its own."""

from __future__ import annotations

import msgspec
import pytest

from loaddriver.errors import ExitCode
from loaddriver.profile.gates import Gate
from loaddriver.profile.loading import PROFILES
from loaddriver.wire.settings import load_wire_profile, wire_profile_names
from loaddriver.wire.summary import (
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
)


def summary(others: float = 0.0, short: int = 0) -> WireSummary:
    seconds = distribution_of([0.1, 0.2, 0.3])
    return WireSummary(
        schema="wire-1",
        verdict="",
        exit_code=0,
        why=[],
        run=Run(id="fleet-4k-1", profile="fleet-4k", seed=1, started_unix_seconds=0.0),
        provenance=Code(revision="", dirty=None, calibration_seconds=0.03),
        fleet=FleetSize(machines=500_000, clusters=5_000, needs=160_000, shards=4, coordinators=1),
        fill=Fill(cold_seconds=12.5, seconds=300.0, machines_in_service=135_000),
        soak_seconds=300.0,
        shards=Shards(
            cycle_seconds=seconds,
            decision_cpu_seconds=seconds,
            cycle_cpu_seconds=0.2,
            cpu_cores=1.5,
            peak_memory_mebibytes=500.0,
            short_at_end=short,
        ),
        sessions=Sessions(
            connected=5_000, ended=0, rollups_per_second=500.0, rejected=0, answer_seconds=seconds
        ),
        changes=Changes(
            roles_killed=1,
            roles_restarted=1,
            shards_joined=0,
            restart_seconds=5.0,
            even_seconds=None,
        ),
        cores={"shard-0": 0.4, "operators": 0.5},
        others_cpu_share=others,
    )


def gate(metric: str, limit: float) -> Gate:
    return Gate(
        name="a gate", metric=metric, op="<=", limit=limit, unit="seconds", origin="For this test."
    )


def test_a_fleet_of_which_all_gates_hold_passes() -> None:
    found = judged(summary(), [gate("shards.decisionCpuSeconds.p99", 0.3)])
    assert (found.verdict, found.exit_code) == ("pass", ExitCode.PASS)


def test_a_missed_gate_says_what_was_measured() -> None:
    found = judged(summary(), [gate("shards.decisionCpuSeconds.p99", 0.2)])
    assert (found.verdict, found.exit_code) == ("fail", ExitCode.GATE_MISSED)
    assert found.why == ["A gate: 0.3 seconds; the limit is at most 0.2 seconds."]


def test_what_was_not_measured_fails() -> None:
    found = judged(summary(), [gate("changes.evenSeconds", 60)])
    assert found.verdict == "fail"
    assert "was not measured" in found.why[0]


def test_on_a_busy_machine_nothing_is_judged() -> None:
    found = judged(summary(others=0.4), [gate("shards.decisionCpuSeconds.p99", 0.2)])
    assert (found.verdict, found.exit_code) == ("invalid", ExitCode.INVALID_RUN)
    assert "40 %" in found.why[0]


@pytest.mark.parametrize("name", wire_profile_names(PROFILES))
def test_every_gate_of_a_shipped_profile_is_on_a_number_of_the_summary(name: str) -> None:
    known = msgspec.to_builtins(summary())
    for each in load_wire_profile(name, PROFILES).gates:
        found = known
        for key in each.metric.split("."):
            assert key in found, f"{each.name}: {each.metric}"
            found = found[key]


def test_quantiles_are_values_that_occurred() -> None:
    found = distribution_of(float(n) for n in range(1, 101))
    assert (found.p50, found.p99, found.max) == (50.0, 99.0, 100.0)


def test_the_text_fits_80_columns() -> None:
    assert max(len(line) for line in summary().lines()) <= 80
