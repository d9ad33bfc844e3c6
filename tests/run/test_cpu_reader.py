"""CPU time is attributed to the run's processes by name, and what is left to others."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from loaddriver.record.cpu import QuotaPeriods, windows
from loaddriver.run.cpu_quota import find_quotas, read_quotas
from loaddriver.run.cpu_reader import CpuReader
from loaddriver.run.process_table import ProcessTable, ProcessTimes, read_memory, read_table
from tests.run.burner import Burner, burn
from tests.support.substrates import ROOT
from tests.support.waiting import wait_until


def test_each_process_of_the_run_has_its_own_time(burner: Burner) -> None:
    reader = CpuReader(lambda: {"shard-0": burner.pid})
    before = reader.read()
    burner.burn(0.3)
    burn(0.1)
    [window] = windows([before, reader.read()])
    assert 0.25 <= window.processes["shard-0"] <= 0.5
    assert 0.1 <= window.processes["runner"] <= 0.4
    assert window.run_seconds >= 0.35


def test_time_of_a_process_that_was_replaced_is_kept() -> None:
    """A shard that a profile restarts is one component."""
    first, second = Burner(), Burner()
    pids = {"shard-0": first.pid}
    reader = CpuReader(lambda: pids)
    first.burn(0.3)
    reader.read()
    first.end()
    assert reader.read().processes["shard-0"] >= 0.28
    pids["shard-0"] = second.pid
    second.burn(0.2)
    assert reader.read().processes["shard-0"] >= 0.45
    second.end()
    assert reader.read().processes["shard-0"] >= 0.45


def test_a_process_beside_the_run_is_not_one_of_the_others(tmp_path: Path) -> None:
    """A provider of one's own is a part of the system under test, whoever started it."""
    pid_file = tmp_path / "pid"
    count = "i=0; while [ $i -lt 9000000 ]; do i=$((i+1)); done; sleep 60"
    script = f"setsid sh -c '{count}' >/dev/null 2>&1 & echo $! > {pid_file}"
    subprocess.run(["sh", "-c", script], check=True)
    pid = int(pid_file.read_text())
    try:
        reader = CpuReader(dict, (), lambda: {"provider": pid})
        apart = CpuReader(dict)
        wait_until(lambda: reader.read().processes.get("provider", 0.0) >= 0.1, "CPU used")
        # What this process has used grows meanwhile.
        without, with_it = apart.read(), reader.read()
        assert with_it.run_seconds >= without.run_seconds + 0.1
        assert any(name.endswith(f"({pid})") for name in without.others)
        assert not any(name.endswith(f"({pid})") for name in with_it.others)
    finally:
        os.kill(pid, signal.SIGKILL)
    assert reader.read().processes["provider"] >= 0.1


_RUN_OF_A_SESSION = """
import os, sys, time
from loaddriver.record.cpu import windows
from loaddriver.run.cpu_reader import CpuReader
reader = CpuReader(dict, session=os.getppid())
readings = [reader.read()]
print("begun", flush=True)
sys.stdin.readline()
until = time.process_time() + 0.2
while time.process_time() < until:
    pass
readings.append(reader.read())
[window] = windows(readings)
session = f"({os.getppid()})"
of_session = any(name.endswith(session) for name in readings[-1].others)
rest = window.machine.used - window.run_seconds - window.other_run_seconds
print(window.run_seconds, window.other_run_seconds, of_session)
print(window.others_share * window.machine.all - max(0.0, rest), flush=True)
"""


def test_the_other_run_of_a_session_is_neither_the_runs_nor_one_of_the_others() -> None:
    """The session is the parent of both, as this process is here."""
    command = [sys.executable, "-c", _RUN_OF_A_SESSION]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        assert run.stdout.readline() == "begun\n"
        other = Burner()
        other.burn(0.3)
        other.end()
        burn(0.1)
        said, _ = run.communicate("go on\n")
    first, excess = said.splitlines()
    own, others, named = first.split()
    assert 0.15 <= float(own) <= 0.35
    assert 0.35 <= float(others) <= 0.7, "also of what has ended"
    assert named == "False"
    assert float(excess) == pytest.approx(0, abs=1e-9)


def test_processes_outside_the_run_have_a_name(burner: Burner) -> None:
    """So that a sentence can say who disturbed it. This process is the other one here."""
    table = read_table()
    mine = table.processes[os.getpid()]
    burner.burn(0.2)
    assert table.processes[burner.pid].parent == os.getpid()
    found = CpuReader(dict).read()
    assert not any(name.endswith(f"({os.getpid()})") for name in found.others)
    assert not any(name.endswith(f"({burner.pid})") for name in found.others)
    assert f"{table.processes[1].command} (1)" in found.others
    assert mine.command


def test_cpu_of_other_processes_is_neither_the_runs_nor_idle() -> None:
    """What the machine used and no process of the run."""
    reader = CpuReader(dict)
    before, began = reader.read(), time.monotonic()
    burn(0.5)
    [window] = windows([before, reader.read()])
    capacity = (time.monotonic() - began) * len(os.sched_getaffinity(0))
    assert window.machine.all == pytest.approx(capacity, rel=0.3)
    assert 0 <= window.others_share <= 1 - 0.4 / window.machine.all


def test_where_processes_cannot_be_told_apart_all_cpu_is_the_runs(burner: Burner) -> None:
    reader = CpuReader(lambda: {"locust": burner.pid}, whole_machine=True)
    before = reader.read()
    burner.burn(0.2)
    [window] = windows([before, reader.read()])
    assert window.run_seconds == window.machine.used
    assert window.others_share == 0
    assert window.others == {}
    assert window.processes["locust"] >= 0.15


def test_reading_costs_little(burner: Burner) -> None:
    """Less than half a percent of a core, once in ten seconds."""
    reader, took = CpuReader(lambda: {"locust": burner.pid}), list[float]()
    for _ in range(5):
        began = time.thread_time()
        reader.read()
        took.append(time.thread_time() - began)
    assert min(took) < 0.05, "others on this machine, and garbage, can only add to it"


def test_a_process_that_is_stopped_does_not_wait_for_a_core(burner: Burner) -> None:
    """One that competes for it does: the kernel counts how long it was ready to run."""
    core = min(os.sched_getaffinity(0))
    rival = Burner()
    for each in (burner, rival):
        os.sched_setaffinity(each.pid, {core})
    reader = CpuReader(lambda: {"locust": burner.pid})
    readings = [reader.read()]
    os.kill(burner.pid, signal.SIGSTOP)
    time.sleep(0.3)
    os.kill(burner.pid, signal.SIGCONT)
    readings.append(reader.read())
    assert rival.child.stdin is not None
    rival.child.stdin.write("0.4\n")
    rival.child.stdin.flush()
    burner.burn(0.4)
    readings.append(reader.read())
    rival.end()
    [stopped], [competed] = windows(readings[:2]), windows(readings[1:])
    assert stopped.waits.get("locust", 0.0) < 0.2
    assert competed.waits["locust"] > 0.1


def test_memory_is_the_peak_and_that_of_descendants_is_added(burner: Burner) -> None:
    reader = CpuReader(lambda: {"all": os.getpid(), "one": burner.pid, "gone": 2**22 + 1})
    reader.read()
    earlier = dict(reader.peak_memory_bytes)
    reader.read()  # these processes grow while they are read, one after the other
    peaks = reader.peak_memory_bytes
    assert peaks["one"] > 2**20
    assert peaks["all"] >= earlier["runner"] + earlier["one"]
    assert "gone" not in peaks
    assert read_memory(2**22 + 1) == (0, 0)


def test_memory_of_the_run_is_of_all_its_processes_at_one_moment(burner: Burner) -> None:
    """Two that need much one after the other do not add up, and what is freed no longer counts."""
    large = 200 * 2**20
    reader = CpuReader(lambda: {"one": burner.pid})
    reader.read()
    without = reader.run_peak_memory_bytes
    assert without is not None
    assert without >= read_memory(burner.pid).own_bytes + read_memory(os.getpid()).own_bytes // 2
    for _ in range(2):
        held = bytearray(large)
        assert len(held) == large  # written to, so resident
        reader.read()
        del held
    found = reader.run_peak_memory_bytes
    assert found is not None
    assert large * 0.95 <= found - without <= large * 1.2
    assert reader.peak_memory_bytes["runner"] >= large


def test_pages_of_files_count_for_a_process_and_not_for_the_run(tmp_path: Path) -> None:
    """Five API servers share one program, and etcd's file is in the page cache once."""
    large = 100 * 2**20
    file = tmp_path / "file"
    file.write_bytes(bytes(large))
    before = read_memory(os.getpid())
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert mapped.find(b"1") == -1  # so every page is read
        found = read_memory(os.getpid())
    assert found.own_bytes - before.own_bytes < large / 10
    assert found.peak_bytes >= found.own_bytes + large


def test_memory_of_processes_that_cannot_be_told_from_others_is_unknown(burner: Burner) -> None:
    reader = CpuReader(lambda: {"locust": burner.pid}, whole_machine=True)
    reader.read()
    assert reader.run_peak_memory_bytes is None


def test_a_tree_includes_what_exited_descendants_used() -> None:
    """Their parents have their time."""
    table = ProcessTable(
        {
            1: ProcessTimes(0, "init", 9.0, 90.0),
            7: ProcessTimes(1, "runner", 1.0, 2.0),
            8: ProcessTimes(7, "sh", 0.5, 4.0),
            9: ProcessTimes(8, "etcd", 3.0, 0.0),
        }
    )
    assert list(table.tree(7)) == [7, 8, 9]
    assert table.tree_seconds(7) == 10.5
    assert table.tree_seconds(10) == 0


def test_a_command_may_look_like_a_stat_line(tmp_path: Path) -> None:
    """It may hold spaces and parentheses."""
    (tmp_path / "12").mkdir()
    numbers = " ".join(["0"] * 9)
    stat = f"12 (a) S 1 (b) S 7 {numbers} 100 50 300 100 20 0"
    (tmp_path / "12" / "stat").write_text(stat)
    (tmp_path / "uptime").write_text("1 1")
    ticks = os.sysconf("SC_CLK_TCK")
    found = read_table(tmp_path).processes
    assert found == {12: ProcessTimes(7, "a) S 1 (b", 150 / ticks, 400 / ticks)}


V2 = {"cpu.max": "400000 100000\n", "cpu.stat": "usage_usec 9\nnr_periods 50\nnr_throttled 5\n"
      "throttled_usec 2500000\n"}  # fmt: skip
V1 = {"cpu.cfs_quota_us": "200000\n", "cpu.cfs_period_us": "100000\n",
      "cpu.stat": "nr_periods 40\nnr_throttled 8\nthrottled_time 3000000000\n"}  # fmt: skip


def cgroup(root: Path, files: Mapping[str, str]) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / name).write_text(text)


@pytest.mark.parametrize(
    ("own", "folder", "files", "periods"),
    [
        ("0::/\n", "", V2, QuotaPeriods(50, 5)),
        ("0::/app/run\n", "app", V2, QuotaPeriods(50, 5)),
        ("1:cpu,cpuacct:/docker/x\n0::/\n", "cpu/docker/x", V1, QuotaPeriods(40, 8)),
        ("1:cpu:/not/visible/here\n", "cpu", V1, QuotaPeriods(40, 8)),
        ("0::/\n", "", {**V2, "cpu.max": "max 100000\n"}, None),
        ("1:cpu:/\n", "cpu", {**V1, "cpu.cfs_quota_us": "-1\n"}, None),
        ("2:memory:/x\n", "memory/x", V1, None),
        ("0::/\n", "", {}, None),
    ],
)
def test_a_quota_is_found_in_ones_own_cgroup_and_in_those_around_it(
    tmp_path: Path, own: str, folder: str, files: Mapping[str, str], periods: QuotaPeriods | None
) -> None:
    """With either version of cgroups, in a container and outside."""
    root = tmp_path / "cgroup"
    cgroup(root / folder, files)
    (tmp_path / "self").write_text(own)
    found = read_quotas(find_quotas(root, tmp_path / "self"))
    expected = {} if periods is None else {str(root / folder).rstrip("/"): periods}
    assert found == expected
