"""CPU is accounted for in windows, so that an average cannot hide a stretch without any."""

from __future__ import annotations

import pytest

from loaddriver.record.cpu import (
    CpuReading,
    CpuTimes,
    QuotaPeriods,
    other_cpu_share,
    total,
    windows,
)


def reading(at: float, used: float, run: float, **more: object) -> CpuReading:
    """A reading on a machine of two cores."""
    known: dict[str, object] = {"processes": {}, **more}
    return CpuReading(at, CpuTimes(used, 2 * at), run, **known)  # type: ignore[arg-type]


def test_a_starved_window_shows_although_the_average_is_low() -> None:
    """Others took both cores for ten seconds of a minute, and nothing otherwise."""
    taken = [0.0, 0.0, 20.0, 20.0, 20.0, 20.0, 20.0]
    found = windows([reading(10 * n, other + 5 * n, 5 * n) for n, other in enumerate(taken)])
    assert [window.others_share for window in found] == [0, 1, 0, 0, 0, 0]
    assert total(found).others_share == pytest.approx(1 / 6)


@pytest.mark.parametrize(("own", "share"), [(1.0, 0.25), (0.0, 0.5), (2.0, 0.0), (3.0, 0.0)])
def test_the_share_of_others_is_of_all_cpu_time(own: float, share: float) -> None:
    """Own time never counts as that of others, despite rounding."""
    assert other_cpu_share(CpuTimes(2.0, 4.0), own) == share
    assert other_cpu_share(CpuTimes(0.0, 0.0), own) is None


@pytest.mark.parametrize(("last", "lengths"), [(24.0, [10, 14]), (25.0, [10, 10, 5])])
def test_a_short_remainder_is_part_of_the_last_window(last: float, lengths: list[float]) -> None:
    """A window of a second would be decided by a single process that woke up."""
    found = windows([reading(at, at, at) for at in (0, 10, 20, last)])
    assert [window.seconds for window in found] == lengths


def test_a_process_used_what_it_gained_and_a_new_one_all_it_has() -> None:
    first = reading(0, 0, 0, processes={"shard-0": 3.0, "idle": 1.0}, others={"make (7)": 1.0})
    last = reading(
        10,
        12,
        9,
        processes={"shard-0": 7.0, "idle": 1.0, "locust": 2.0},
        others={"make (7)": 2.0, "cc1 (8)": 4.0, "sleep (9)": 0.1},
    )
    [window] = windows([first, last])
    assert window.processes == {"shard-0": 4.0, "locust": 2.0}
    assert window.cores("shard-0") == pytest.approx(0.4)
    assert window.others == {"make (7)": 1.0, "cc1 (8)": 4.0}


def test_throttling_is_the_share_of_a_quotas_periods_that_were_cut_short() -> None:
    """Of several quotas, the strictest counts; without one nothing is throttled."""
    before = {"pod": QuotaPeriods(100, 10), "slice": QuotaPeriods(100, 0)}
    now = {"pod": QuotaPeriods(200, 35), "slice": QuotaPeriods(200, 5)}
    [window] = windows([reading(0, 0, 0, quotas=before), reading(10, 1, 1, quotas=now)])
    assert window.throttled_share == 0.25
    [free] = windows([reading(0, 0, 0), reading(10, 1, 1)])
    assert free.throttled_share == 0
    assert total([window, free]).throttled_share == 0.125


def test_time_withheld_by_a_hypervisor_is_kept_apart() -> None:
    before = CpuReading(0, CpuTimes(0, 0, 0), 0, {})
    [window] = windows([before, CpuReading(10, CpuTimes(15, 20, 6), 9, {})])
    assert window.machine.stolen == 6
    assert window.others_share == pytest.approx(0.3)
