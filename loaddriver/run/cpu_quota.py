"""CPU quotas of the cgroups that hold this process, and how often they were used up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from loaddriver.record.cpu import QuotaPeriods

CGROUP_ROOT = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")
_V1_CONTROLLER = "cpu"
_NO_QUOTA = ("max", "-1")


@dataclass(frozen=True)
class CpuQuota:
    """A cgroup whose CPU time is limited; `folder` has its files, of cgroup v1 or v2."""

    folder: Path

    def periods(self) -> QuotaPeriods:
        """Read the enforcement periods so far."""
        lines = (line.split() for line in (self.folder / "cpu.stat").read_text().splitlines())
        counted = {name: int(value) for name, value in lines}
        microseconds = counted.get("throttled_usec")
        nanoseconds = counted.get("throttled_time", 0)
        return QuotaPeriods(
            counted.get("nr_periods", 0),
            counted.get("nr_throttled", 0),
            nanoseconds / 1e9 if microseconds is None else microseconds / 1e6,
        )


def find_quotas(root: Path = CGROUP_ROOT, own: Path = OWN_CGROUPS) -> tuple[CpuQuota, ...]:
    """The quotas that limit this process: its own cgroup's, and those of the groups around it."""
    folders = dict.fromkeys(_folders(root, own))
    return tuple(CpuQuota(folder) for folder in folders if _is_limited(folder))


def read_quotas(quotas: tuple[CpuQuota, ...]) -> Mapping[str, QuotaPeriods]:
    """The periods of each quota so far, by its folder."""
    return {str(quota.folder): quota.periods() for quota in quotas}


def _folders(root: Path, own: Path) -> Iterator[Path]:
    """The folders of this process's CPU cgroups, innermost first.

    In a container, the paths may be those of the host: what does not exist is skipped.
    """
    try:
        lines = own.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and _V1_CONTROLLER not in controllers.split(","):
            continue
        top = root / _V1_CONTROLLER if controllers else root
        inner = top / path.lstrip("/")
        yield from (inner, *(parent for parent in inner.parents if parent.is_relative_to(top)))
    yield from (root, root / _V1_CONTROLLER)


def _is_limited(folder: Path) -> bool:
    for name in ("cpu.max", "cpu.cfs_quota_us"):
        try:
            return (folder / name).read_text().split()[0] not in _NO_QUOTA
        except (OSError, IndexError):
            continue
    return False
