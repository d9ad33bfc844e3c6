"""Profiles for tests: the shipped ones, overridden or copied and edited."""

from __future__ import annotations

import shutil
from functools import cache, lru_cache
from pathlib import Path

from loaddriver.plan.make import make_plan
from loaddriver.plan.records import Plan
from loaddriver.profile.loading import Profile, load_profile
from loaddriver.sizing.demand import PlanDemand, demand
from loaddriver.sizing.shared_demand import SharedMachineDemand, compute_demand

PROFILES = Path(__file__).parents[2] / "profiles"
SHIPPED = ("smoke", "dev-50", "dev-500")
# Each gates one behaviour; like those above, they run on two cores.
SPECIAL = (
    "cr-50",
    "gang-frag-50",
    "knee-50",
    "reclaim-50",
    "oscillation-50",
    "preemption-50",
    "fedhpa-3",
    "scarcity-50",
    "shards-8",
    "compare-50",
    "compare-25",
    "drain-50",
    "providers-50",
    "shards-grow",
)


# To plan takes up to half a second, and a plan some megabytes; nobody changes one.
_PLANS = 16

# Pods of all sizes share their machines; these, too, run on two cores.
SHARED = (
    "mixed-50",
    "spread-50",
    "antiaffinity-50",
    "handover-50",
    "handover-none-50",
    "cost-routing-50",
    "spot-churn-50",
)


@cache
def shipped(name: str, *overrides: str, seed: int | None = None) -> Profile:
    """A shipped profile with overrides."""
    return load_profile(name, PROFILES, overrides, seed)


@lru_cache(_PLANS)
def planned(
    name: str, *overrides: str, seed: int | None = None
) -> tuple[Profile, Plan, PlanDemand]:
    """A shipped profile with its plan and demand."""
    profile = shipped(name, *overrides, seed=seed)
    plan = make_plan(profile)
    return profile, plan, demand(plan, profile.catalog)


@lru_cache(_PLANS)
def planned_shared(
    name: str, *overrides: str, seed: int | None = None
) -> tuple[Profile, Plan, SharedMachineDemand]:
    """A shipped profile with shared machines, its plan and demand."""
    profile = shipped(name, *overrides, seed=seed)
    plan = make_plan(profile)
    demand = compute_demand(plan, profile.catalog)
    assert isinstance(demand, SharedMachineDemand)
    return profile, plan, demand


def copied_profiles(folder: Path) -> Path:
    """A copy of all shipped profiles that a test may edit."""
    return Path(shutil.copytree(PROFILES, folder / "profiles"))


def edit(path: Path, old: str, new: str) -> None:
    """Replace text that must exist in a file."""
    text = path.read_text()
    assert old in text, f"{path} does not contain {old!r}"
    path.write_text(text.replace(old, new))
