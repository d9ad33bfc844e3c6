"""`loaddriver doctor` in words, within 80 columns. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from loaddriver.doctor.assess import Assessment, Finding, LeastEffect, ProfileFit
from loaddriver.doctor.facts import Disk, Machine
from loaddriver.sizing.estimate import gibibytes

_COLUMNS = 80
_INDENT = "  "
_NAME = 18


def lines_of(found: Assessment) -> Iterator[str]:
    """All lines."""
    yield from _section("THIS MACHINE", (_fact(*each) for each in _facts(found.machine)))
    if found.findings:
        yield from _section("FINDINGS", (line for each in found.findings for line in _said(each)))
    yield from _section("PROFILES", _profiles(found.profiles))
    yield from _section(
        "LEAST EFFECT THAT A COMPARISON FINDS HERE, BY THIS MACHINE'S NOISE ALONE",
        _effects(found.least_effects),
    )
    yield _verdict(found)


def _section(title: str, lines: Iterator[str]) -> Iterator[str]:
    yield title
    yield from (line for each in lines for line in each.split("\n"))
    yield ""


def _fact(name: str, text: str) -> str:
    return "\n".join(
        wrap(
            text,
            _COLUMNS,
            initial_indent=f"{_INDENT}{name:<{_NAME}}",
            subsequent_indent=" " * (len(_INDENT) + _NAME),
        )
    )


def _facts(machine: Machine) -> Iterator[tuple[str, str]]:
    cpu, memory, clock, limits = machine.cpu, machine.memory, machine.clock, machine.limits
    quota = "no quota" if cpu.quota_cores is None else f"a quota worth {cpu.quota_cores:g}"
    yield "cores", f"{cpu.cores} usable, {quota}; {cpu.processor}"
    left = memory.cgroup_left_bytes
    yield (
        "memory",
        f"{gibibytes(memory.available_bytes)} of {gibibytes(memory.total_bytes)} available; "
        + ("no limit" if left is None else f"limits leave {gibibytes(left)}"),
    )
    steered = {True: "synchronised", False: "not synchronised", None: "nobody knows if right"}
    yield "clock", f"source {clock.source}, {steered[clock.synchronised]}; {_step(machine)}"
    yield "clusters' data", _disk(machine.data)
    yield "results", _disk(machine.results)
    yield "open files", f"{_shown(limits.open_files)}, at most {_shown(limits.open_files_hard)}"
    yield (
        "inotify",
        f"{_shown(limits.inotify_instances)} instances, {_shown(limits.inotify_watches)} watches",
    )
    yield "ports", f"{_shown(limits.ports)}, {_shown(limits.ports_in_use)} sockets in use"
    yield from _noise(machine)


def _step(machine: Machine) -> str:
    step = machine.noise.clock_step_max_seconds
    return "steps unknown" if step is None else f"largest step {1000 * step:.1f} ms"


def _disk(disk: Disk) -> str:
    half, high, most = disk.sync_p50_seconds, disk.sync_p99_seconds, disk.sync_max_seconds
    times = "sync not measured"
    if half is not None and high is not None and most is not None:
        times = (
            f"sync p50 {1000 * half:.2f}, p99 {1000 * high:.2f}, max {1000 * most:.2f} ms "
            f"of {disk.syncs}"
        )
    return f"{disk.path} ({disk.file_system}), {gibibytes(disk.free_bytes)}; {times}"


def _noise(machine: Machine) -> Iterator[tuple[str, str]]:
    noise = machine.noise
    yield (
        "fixed task",
        f"{1000 * noise.task_cpu_seconds:.1f} ms of CPU; repeated for {noise.seconds:.0f} s, its "
        f"duration varied by {noise.elapsed_spread:.1%}, its CPU by {noise.cpu_spread:.1%}",
    )
    others = "unknown" if noise.others_share is None else f"{noise.others_share:.0%}"
    yield (
        "meanwhile",
        f"CPU of others {others}, of that withheld by a hypervisor {noise.stolen_share:.1%}; "
        f"quota used up in {noise.throttled_share:.0%} of periods; {noise.wait_share:.0%} of the "
        "time without a core",
    )


def _said(finding: Finding) -> Iterator[str]:
    mark = "PROBLEM " if finding.level == "problem" else "note    "
    indent = " " * (len(_INDENT) + len(mark))
    yield from wrap(
        finding.sentence, _COLUMNS, initial_indent=_INDENT + mark, subsequent_indent=indent
    )


def _profiles(fits: list[ProfileFit]) -> Iterator[str]:
    for each in fits:
        word = "yes" if each.fits else "no"
        head = f"{_INDENT}{each.profile:<{_NAME}}{word:<5}{each.minutes:6.1f} min  "
        why = each.reason.replace(f"{each.profile} needs", "needs")
        yield from wrap(
            f"{head}{why}", _COLUMNS, subsequent_indent=" " * len(head), drop_whitespace=True
        )


def _effects(effects: list[LeastEffect]) -> Iterator[str]:
    def row(name: str, cells: list[str]) -> str:
        return f"{_INDENT}{name:<{_NAME}}" + "".join(f"{cell:>9}" for cell in cells)

    yield row("pairs", [str(each.pairs) for each in effects])
    yield row("waits", [f"{each.elapsed:.1%}" for each in effects])
    yield row("CPU", [f"{each.cpu:.1%}" for each in effects])


def _verdict(found: Assessment) -> str:
    fit = [each.profile for each in found.profiles if each.fits]
    if len(fit) == len(found.profiles):
        return "Results of all these profiles mean something here."
    return f"Results of {len(fit)} of {len(found.profiles)} profiles mean something here."


def _shown(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"
