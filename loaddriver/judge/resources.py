"""What a pod costs: CPU and memory by component, and writes to the API servers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

import msgspec

from loaddriver.judge.facts import HarnessHealth
from loaddriver.record.cpu import PROVIDER, CpuWindow, is_driver
from loaddriver.record.recorder import Observations
from loaddriver.record.server_counts import WriteCount

HARNESS = "harness"
_NUMBER = re.compile(r"-\d+$")


class ComponentUse(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """CPU and memory of all processes of a component while the load ran.

    `cpu_share` is of the run's CPU, 0 to 1; `peak_memory_bytes` is that of its largest process.
    """

    processes: int
    cpu_seconds: float
    cpu_seconds_per_pod: float | None
    cpu_share: float
    peak_memory_bytes: int


class WriteUse(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Writes of a kind that succeeded, and those that the API servers rejected."""

    what: str
    count: int
    per_pod: float | None
    rejected: int


class CpuTimeline(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Shares of the machine's CPU by window, each of which ended after so many `seconds`.

    `other_run_share` is that of the run that a comparison played at the same time.
    """

    seconds: list[float]
    run_share: list[float]
    others_share: list[float]
    throttled_share: list[float]
    other_run_share: list[float] = []


class Resources(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """CPU from the load's first request to its last, and writes from then to the end.

    Rates are by created pod, or by created CapacityRequest in a load without pods, and null
    without any. `components` adds up the processes of one kind, whatever their cluster; runner and
    load are the `harness`. What belongs to no component (helpers that have exited) is in
    `cpu_seconds` only. `unknown` names processes elsewhere that did not tell what they used: then
    `cpu_seconds` is null, and their components are left out. Writes are counted by the API servers,
    for all clients, by verb and resource (`create-pods-binding`, so that gates can name them), and
    so are the bytes of the objects that were written, read and watched; null if a server did not
    give its counts. `peak_memory_bytes` is the largest sum of all processes' resident memory at one
    moment, without pages of files, which they share; null if some run elsewhere.
    """

    pods: int
    cpu_seconds: float | None
    cpu_seconds_per_pod: float | None
    machine_busy_share: float
    components: dict[str, ComponentUse]
    processes: dict[str, ComponentUse]
    writes_per_pod: float | None
    writes: dict[str, WriteUse] | None
    windows: CpuTimeline
    unknown: list[str] = []
    api_bytes_per_pod: float | None = None
    peak_memory_bytes: int | None = None


def resources_section(
    health: HarnessHealth | None, observed: Sequence[Observations], pods: int
) -> Resources | None:
    """The section; None if CPU was not measured, or not by process."""
    if health is None or not health.cpu.windows:
        return None
    whole, remote = health.cpu.whole, health.cpu.remote
    if all(map(is_driver, whole.processes)) and not remote.unknown:
        return None
    writes, unknown = _writes(observed), remote.unknown
    memory = {**health.cpu.peak_memory_bytes, **remote.peak_memory_bytes}
    components = _uses(whole, memory, pods, component_of)
    for component in map(component_of, unknown):
        components.pop(component, None)
    return Resources(
        pods=pods,
        cpu_seconds=None if unknown else round(whole.run_seconds, 3),
        cpu_seconds_per_pod=None if unknown else _each(whole.run_seconds, pods),
        machine_busy_share=round(whole.busy_share, 4),
        components=components,
        processes=_uses(whole, memory, pods, str),
        unknown=list(unknown),
        writes_per_pod=None
        if writes is None
        else _each(sum(each.granted for each in writes.values()), pods),
        writes=None
        if writes is None
        else {_key(what): _write(what, writes[what], pods) for what in sorted(writes)},
        windows=_windows(health.cpu.windows),
        api_bytes_per_pod=_bytes_per_pod(observed, pods),
        peak_memory_bytes=health.cpu.run_peak_memory_bytes,
    )


def component_of(process: str) -> str:
    """The component of a process: `c1/kube-apiserver` is a kube-apiserver, `shard-0` a shard."""
    if is_driver(process):
        return HARNESS
    name = process.rpartition("/")[2]
    # A run may have several, each with a name of its own.
    return PROVIDER if name.startswith(f"{PROVIDER}-") else _NUMBER.sub("", name)


def _uses(
    whole: CpuWindow, memory: Mapping[str, int], pods: int, kind: Callable[[str], str]
) -> dict[str, ComponentUse]:
    """The processes of each kind, largest CPU first."""
    members: defaultdict[str, list[str]] = defaultdict(list)
    for process in whole.processes.keys() | memory.keys():
        members[kind(process)].append(process)
    seconds = {
        name: sum(whole.processes.get(each, 0.0) for each in processes)
        for name, processes in members.items()
    }
    return {
        name: ComponentUse(
            processes=len(members[name]),
            cpu_seconds=round(seconds[name], 3),
            cpu_seconds_per_pod=_each(seconds[name], pods),
            cpu_share=round(seconds[name] / whole.run_seconds, 4) if whole.run_seconds else 0.0,
            peak_memory_bytes=max(memory.get(each, 0) for each in members[name]),
        )
        for name in sorted(members, key=lambda name: (-seconds[name], name))
    }


def _writes(observed: Sequence[Observations]) -> dict[str, WriteCount] | None:
    """The writes of all clusters; None if those of any are unknown."""
    total: defaultdict[str, WriteCount] = defaultdict(WriteCount)
    for each in observed:
        if each.writes is None:
            return None
        for what, count in each.writes.items():
            total[what] += count
    return dict(total) or None


def _bytes_per_pod(observed: Sequence[Observations], pods: int) -> float | None:
    moved = [each.bytes_moved for each in observed]
    known = [each for each in moved if each is not None]
    return _each(sum(known), pods) if known and len(known) == len(moved) else None


def _write(what: str, count: WriteCount, pods: int) -> WriteUse:
    return WriteUse(
        what=what,
        count=count.granted,
        per_pod=_each(count.granted, pods),
        rejected=count.rejected,
    )


def _key(what: str) -> str:
    """Names in gates have neither spaces nor slashes."""
    return what.replace(" ", "-").replace("/", "-")


def _windows(parts: Sequence[CpuWindow]) -> CpuTimeline:
    run = (max(0.0, part.busy_share - part.others_share - part.other_run_share) for part in parts)
    return CpuTimeline(
        seconds=[round(end, 1) for end in accumulate(part.seconds for part in parts)],
        run_share=[round(share, 4) for share in run],
        others_share=[round(part.others_share, 4) for part in parts],
        throttled_share=[round(part.throttled_share, 4) for part in parts],
        other_run_share=[round(part.other_run_share, 4) for part in parts],
    )


def _each(total: float, pods: int) -> float | None:
    return round(total / pods, 6) if pods else None
