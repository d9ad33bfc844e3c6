"""CPU quotas of the cgroups that hold this process, and how often they were used up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from loaddriver.record.cpu import QuotaPeriods
from loaddriver.run.cgroups import CGROUP_ROOT, OWN_CGROUPS, cgroup_folders

_CONTROLLER = "cpu"
_NO_QUOTA = ("max", "-1")


@dataclass(frozen=True)
class CpuQuota:
    """A cgroup whose CPU time is limited; `folder` has its files, of cgroup v1 or v2."""

    folder: Path

    @property
    def cores(self) -> float | None:
        """The CPU seconds that it allows in a second; None if it was lifted meanwhile."""
        return _cores(self.folder)

    def periods(self) -> QuotaPeriods:
        """Read the enforcement periods so far."""
        lines = (line.split() for line in (self.folder / "cpu.stat").read_text().splitlines())
        counted = {name: int(value) for name, value in lines}
        return QuotaPeriods(counted.get("nr_periods", 0), counted.get("nr_throttled", 0))


def find_quotas(root: Path = CGROUP_ROOT, own: Path = OWN_CGROUPS) -> tuple[CpuQuota, ...]:
    """The quotas that limit this process: its own cgroup's, and those of the groups around it."""
    folders = dict.fromkeys(cgroup_folders(_CONTROLLER, root, own))
    return tuple(CpuQuota(folder) for folder in folders if _cores(folder) is not None)


def read_quotas(quotas: tuple[CpuQuota, ...]) -> Mapping[str, QuotaPeriods]:
    """The periods of each quota so far, by its folder."""
    return {str(quota.folder): quota.periods() for quota in quotas}


def _cores(folder: Path) -> float | None:
    """The quota of a period by the period's length; None without a quota."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text()
        return None if quota in _NO_QUOTA else int(quota) / int(period)
    except (OSError, ValueError):
        return None
