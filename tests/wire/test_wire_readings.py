"""Cycles are timed one by one from sums that a shard counts, across its restarts."""

from __future__ import annotations

from loaddriver.wire.readings import Sample, ShardReadings

_PREFIX = "bigfleet_shard_"


def sample(cycles: int, seconds: float, cpu: float) -> Sample:
    return {
        (f"{_PREFIX}cycle_duration_seconds_count", ""): cycles,
        (f"{_PREFIX}cycle_duration_seconds_sum", ""): seconds,
        (f"{_PREFIX}decision_cpu_seconds_sum", ""): cpu,
    }


def test_a_cycle_lasted_what_the_sum_has_grown_by() -> None:
    shard = ShardReadings("shard-0")
    for at, (cycles, seconds, cpu) in enumerate([(0, 0, 0), (1, 0.5, 0.2), (1, 0.5, 0.2)]):
        shard.note(sample(cycles, seconds, cpu), float(at))
    assert shard.cycle_seconds == [0.5]
    assert shard.decision_cpu_seconds == [0.2]


def test_two_cycles_between_readings_count_as_two_of_their_mean() -> None:
    shard = ShardReadings("shard-0")
    shard.note(sample(3, 1.0, 0.5), 0.0)
    shard.note(sample(5, 2.0, 0.75), 1.0)
    assert shard.cycle_seconds[-2:] == [0.5, 0.5]
    assert shard.decision_cpu_seconds[-2:] == [0.125, 0.125]


def test_a_shard_that_starts_again_is_timed_from_its_second_cycle() -> None:
    shard = ShardReadings("shard-0")
    shard.note(sample(100, 50.0, 10.0), 0.0)
    before = len(shard.cycle_seconds)
    shard.note_silence(1.0)
    shard.note(sample(0, 0.0, 0.0), 2.0)
    assert shard.first_cycles == []
    shard.note(sample(1, 4.0, 3.0), 6.0)
    assert shard.first_cycles == [6.0]
    assert len(shard.cycle_seconds) == before
    shard.note(sample(2, 4.5, 3.25), 7.0)
    assert shard.cycle_seconds[before:] == [0.5]


def test_a_restart_between_two_readings_is_seen_by_the_count() -> None:
    shard = ShardReadings("shard-0")
    shard.note(sample(100, 50.0, 10.0), 0.0)
    shard.note(sample(2, 1.0, 0.5), 1.0)
    assert shard.first_cycles == [1.0]


def test_samples_with_labels_add_up() -> None:
    shard = ShardReadings("shard-0")
    name = f"{_PREFIX}inventory_machines"
    shard.note({(name, 'state="IDLE"'): 3.0, (name, 'state="CONFIGURED"'): 4.0}, 0.0)
    assert shard.total(name) == 7
    assert shard.total(name, 'state="CONFIGURED"') == 4
