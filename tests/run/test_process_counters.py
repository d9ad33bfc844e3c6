"""What a process elsewhere used is the difference of what it says of itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from loaddriver.process_counters import ProcessCounters, UsedSince, counters_of, used_between

MEBIBYTE = 1 << 20


def at(cpu: float, started: float = 1000.0, mebibytes: int = 1) -> ProcessCounters:
    return ProcessCounters(cpu, started, mebibytes * MEBIBYTE)


GO = b"""# HELP go_threads Number of OS threads created.
go_threads 12
# HELP process_cpu_seconds_total Total user and system CPU time spent in seconds.
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 12.5
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes 5.24288e+07
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.79570677172e+09
process_virtual_memory_max_bytes 1.8446744073709552e+19
"""
CHILD = b"""bigfleet_child_processes_cpu_seconds_total 2.5
bigfleet_child_processes_resident_memory_bytes 1.048576e+06
"""


def test_a_program_in_go_tells_its_cpu_its_start_and_its_memory() -> None:
    assert counters_of(GO) == ProcessCounters(12.5, 1795706771.72, 50 * MEBIBYTE)


def test_processes_that_a_role_started_are_part_of_it() -> None:
    found = counters_of(GO + CHILD)
    assert found == ProcessCounters(15.0, 1795706771.72, 51 * MEBIBYTE)


def test_a_program_in_python_tells_the_same() -> None:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    assert counters_of(generate_latest(registry)).cpu_seconds > 0


@pytest.mark.parametrize(
    "text", [b"", b"<html>", GO.replace(b"process_start", b"x"), GO.replace(b"\nprocess_cpu", b"#")]
)
def test_a_counter_that_is_lacking_is_named(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"lack process_(cpu|start)"):
        counters_of(text)


@pytest.mark.parametrize(
    ("before", "now", "used"),
    [
        (at(3), at(5), 2),
        (at(3), at(3), 0),
        (at(3), at(1, started=1060), 1),
        (at(3), at(4, started=1060), 4),  # it has used more than the first one already
        (at(3), at(5, started=1001), 2),  # the time of the boot is rounded
        (at(3), at(2.99), 0),  # a child that is between two counters
    ],
)
def test_a_process_that_was_replaced_counts_from_its_start(
    before: ProcessCounters, now: ProcessCounters, used: float
) -> None:
    assert used_between(before, now) == used


def test_what_was_used_before_the_first_reading_does_not_count() -> None:
    used = UsedSince({"shard-0": at(50, mebibytes=5)})
    used.end({"shard-0": at(53, mebibytes=4)})
    assert used.cpu_seconds == {"shard-0": 3}
    assert used.peak_memory_bytes == {"shard-0": 5 * MEBIBYTE}
    assert used.unknown == ()


def test_what_a_replaced_process_used_counts_up_to_its_last_reading() -> None:
    """Those between the first and the last may be of some components, and may lack one."""
    used = UsedSince({"shard-0": at(50), "c1/etcd": at(7)})
    used.note({"shard-0": at(53)})
    used.note({"shard-0": None})
    used.note({"shard-0": at(2, started=1100, mebibytes=9)})
    used.end({"shard-0": at(4, started=1100), "c1/etcd": at(8)})
    assert used.cpu_seconds == {"shard-0": 3 + 4, "c1/etcd": 1}
    assert used.peak_memory_bytes["shard-0"] == 9 * MEBIBYTE


@pytest.mark.parametrize("first", [None, at(1)])
def test_a_component_that_the_first_or_the_last_reading_lacks_is_unknown_and_not_zero(
    first: ProcessCounters | None,
) -> None:
    used = UsedSince({"c1/kwok": first, "c1/etcd": at(1)})
    used.note({"c1/kwok": at(2)})
    used.end({"c1/kwok": at(3) if first is None else None, "c1/etcd": at(2)})
    assert used.unknown == ("c1/kwok",)
    assert used.cpu_seconds == {"c1/etcd": 1}
    assert set(used.peak_memory_bytes) == {"c1/etcd"}


def test_an_unequal_start_is_that_of_another_process_only_beyond_rounding() -> None:
    one = at(1)
    assert used_between(one, replace(one, cpu_seconds=2, started_seconds=1002.0)) == 1
    assert used_between(one, replace(one, cpu_seconds=2, started_seconds=1003.0)) == 2
