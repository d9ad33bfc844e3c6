"""A machine that cannot measure is told so before a run, with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from loaddriver.commands.doctor import examine, exit_code
from loaddriver.compare.sequential import Code, Spending, codes_of
from loaddriver.doctor.assess import Assessment, assess, least_effect
from loaddriver.doctor.canary import instruments
from loaddriver.doctor.facts import Machine
from loaddriver.doctor.reading import Roots, read_disk, sync_times
from loaddriver.doctor.text import lines_of
from loaddriver.errors import ExitCode
from loaddriver.profile.loading import Profile, load_profile
from tests.doctor.doctor_rig import QUOTA, MadeUpMachine, disk, write
from tests.run.run_rig import PROFILES

SMALL_MEMORY = {
    "sys/fs/cgroup/memory.max": str(2**29),
    "sys/fs/cgroup/memory.current": "0",
    "sys/fs/cgroup/memory.stat": "inactive_file 0\n",
}


@pytest.fixture(scope="module")
def profiles() -> list[Profile]:
    """One that fits everywhere, one for a large machine, and one for many hosts."""
    return [load_profile(name, PROFILES) for name in ("smoke", "dev-500", "5m")]


def problems(found: Assessment) -> list[str]:
    """The sentences that keep a machine from measuring."""
    return [each.sentence for each in found.findings if each.level == "problem"]


def test_a_calm_machine_has_no_problem_and_runs_what_fits_it(
    tmp_path: Path, profiles: list[Profile]
) -> None:
    found = assess(MadeUpMachine(tmp_path).examined(), profiles)
    assert found.findings == []
    assert [each.fits for each in found.profiles] == [True, True, False]
    assert "of memory, this machine has 20.0 GiB free" in found.profiles[2].reason
    assert [each.pairs for each in found.least_effects] == [6, 8, 10, 12, 16]
    assert exit_code(found, named=False) is ExitCode.PASS
    assert exit_code(found, named=True) is ExitCode.USAGE


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"files": QUOTA, "throttled": 0.6}, "of its periods by one process alone"),
        ({"files": QUOTA}, "A run can keep 1 core busy (its quota)"),
        ({"cores": 1}, "A run can keep 1 core busy, and the load"),
        ({"stolen": 0.4}, "hypervisor took 40% of the CPU"),
        ({"others": 0.3}, "Those that used most: make (7) 30 %"),
        ({"step": 0.5}, "The clock was set by 0.500 s"),
        (
            {"files": {"proc/self/limits": "Max open files  1024  2048  files\n"}},
            "A process may open 2048 files",
        ),
    ],
)
def test_what_makes_runs_invalid_is_a_problem_and_no_profile_fits(
    tmp_path: Path, profiles: list[Profile], made: dict[str, Any], said: str
) -> None:
    """Each by the limit at which the self-checks of a run call it invalid."""
    found = assess(MadeUpMachine(tmp_path, **made).examined(), profiles)
    assert said in " ".join(problems(found))
    assert not any(each.fits for each in found.profiles)
    assert exit_code(found, named=False) is ExitCode.USAGE


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"stolen": 0.05}, "The hypervisor withheld 5% of the CPU"),
        ({"files": {"sys/fs/cgroup/cpu.max": "400000 100000\n"}}, "A CPU quota of 4 cores"),
        ({"files": {"proc/sys/fs/inotify/max_user_instances": "128\n"}}, "set it to 512"),
        ({"files": {"proc/sys/net/ipv4/ip_local_port_range": "60000 60999\n"}}, "Only 970 ports"),
        (
            {"files": {"sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet"}},
            "The clock source is hpet",
        ),
    ],
)
def test_what_only_disturbs_is_a_note(
    tmp_path: Path, profiles: list[Profile], made: dict[str, Any], said: str
) -> None:
    found = assess(MadeUpMachine(tmp_path, **made).examined(), profiles)
    assert problems(found) == []
    assert said in " ".join(each.sentence for each in found.findings)
    assert found.profiles[0].fits


def test_a_slow_disk_matters_where_clusters_keep_their_state(
    tmp_path: Path, profiles: list[Profile]
) -> None:
    """Results are written after the measurement."""
    machine, slow = MadeUpMachine(tmp_path).examined(), disk("/tmp", "ext4", 0.2)
    found = assess(msgspec.structs.replace(machine, data=slow), profiles)
    assert "Writes to /tmp" in found.findings[0].sentence
    assert assess(msgspec.structs.replace(machine, results=slow), profiles).findings == []


def test_clusters_need_room_for_their_data(tmp_path: Path, profiles: list[Profile]) -> None:
    """A container's memory file system of 64 MiB is too small, and its disk may be, too."""
    machine = MadeUpMachine(tmp_path).examined()
    full = msgspec.structs.replace(machine.data, free_bytes=64 << 20)
    [problem] = problems(assess(msgspec.structs.replace(machine, data=full), profiles))
    assert problem.startswith("/dev/shm has the most room for the clusters' data, and that is 0.1")


def test_memory_is_what_the_cgroup_leaves(tmp_path: Path, profiles: list[Profile]) -> None:
    """As preflight counts it."""
    found = assess(MadeUpMachine(tmp_path, SMALL_MEMORY).examined(), profiles)
    assert "this machine has 0.5 GiB free" in found.profiles[0].reason
    assert not found.profiles[0].fits


def test_the_noisier_a_machine_the_larger_the_least_effect(
    tmp_path: Path, profiles: list[Profile]
) -> None:
    """Waiting for a core shows in elapsed time alone."""
    calm = assess(MadeUpMachine(tmp_path).examined(), profiles).least_effects
    pattern = tuple(1 + 0.2 * (number // 10 % 2) for number in range(20))
    noisy = assess(MadeUpMachine(tmp_path, slowness=pattern).examined(), profiles).least_effects
    assert [each.elapsed for each in calm] == [0.0] * 5
    assert noisy[0].elapsed > noisy[-1].elapsed > 0.05
    assert noisy[0].cpu == 0.0


@pytest.mark.parametrize("pairs", [6, 16])
def test_a_comparison_finds_the_least_effect_nineteen_times_of_twenty(pairs: int) -> None:
    """Held against the rule that decides sessions, on made-up pairs of that noise."""
    spread, sessions = 0.05, 2000
    effect = np.log1p(least_effect(spread, pairs))
    draws = np.random.default_rng(5).normal(effect, spread * 2**0.5, (sessions, pairs, 1))
    codes = codes_of(draws, Spending(least_effect=1 + 1e-9))
    assert 0.93 <= np.mean(codes == Code.REGRESSION) <= 0.97


@pytest.mark.parametrize(
    "made", [{}, {"files": QUOTA, "throttled": 0.6, "step": 1.0}, {"stolen": 0.4, "others": 0.3}]
)
def test_the_text_fits_a_terminal(
    tmp_path: Path, profiles: list[Profile], made: Mapping[str, Any]
) -> None:
    found = assess(MadeUpMachine(tmp_path, **made).examined(), profiles)
    lines = list(lines_of(found))
    assert max(map(len, lines)) <= 80
    assert all(each.profile in "\n".join(lines) for each in found.profiles)
    assert lines[-1].startswith("Results of ")


def test_json_has_all_that_the_text_says(tmp_path: Path, profiles: list[Profile]) -> None:
    found = assess(MadeUpMachine(tmp_path, stolen=0.4).examined(), profiles)
    encoded = msgspec.json.encode(found)
    assert msgspec.json.decode(encoded, type=Assessment) == found
    assert msgspec.json.decode(encoded)["schema"] == "bigfleet.doctor/v1"


def test_the_innermost_mount_names_the_file_system(tmp_path: Path) -> None:
    """A folder's own, not that of the root; spaces are escaped in the kernel's table."""
    deep = tmp_path / "a b" / "deep"
    deep.mkdir(parents=True)
    escaped = str(tmp_path / "a b").replace(" ", "\\040")
    mounts = f"overlay / overlay rw 0 0\n/dev/sdb {escaped} xfs rw 0 0\n"
    roots = write(tmp_path / "kernel", {"proc/self/mounts": mounts})
    found = read_disk(deep, roots, lambda _: [0.3, 0.1, 0.2], 7)
    assert (found.file_system, found.sync_p50_seconds, found.sync_max_seconds) == ("xfs", 0.2, 0.3)
    assert read_disk(tmp_path, roots, lambda _: [], 7).file_system == "overlay"


def test_synchronised_writes_leave_nothing_behind(tmp_path: Path) -> None:
    times = sync_times(tmp_path)
    assert 1 <= len(times) <= 200
    assert min(times) > 0
    assert list(tmp_path.iterdir()) == []


def test_this_machine_can_be_examined(tmp_path: Path, profiles: list[Profile]) -> None:
    """With the kernel's own files; a missing one would be unknown, not a crash."""
    roots = Roots()
    by = replace(instruments(roots.quotas()), stretch_seconds=0.02)
    machine: Machine = examine(roots, by, tmp_path / "results")
    assert machine.cpu.cores >= 1
    assert machine.memory.total_bytes > machine.memory.available_bytes > 0
    assert machine.noise.task_cpu_seconds > 0
    assert machine.limits.ports
    assert machine.results.syncs > 0
    assert "unknown" not in (machine.clock.source, machine.results.file_system)
    assert list(lines_of(assess(machine, profiles)))


def test_a_machine_without_the_kernels_files_is_unknown_and_no_crash(
    tmp_path: Path, profiles: list[Profile]
) -> None:
    """As under a hardened container, or another kernel."""
    roots = Roots(tmp_path / "proc", tmp_path / "sys")
    by = replace(instruments(roots.quotas()), stretch_seconds=0.01)
    machine = examine(roots, by, tmp_path)
    assert machine.clock.source == "unknown"
    assert machine.limits.open_files is None
    assert list(lines_of(assess(machine, profiles)))
