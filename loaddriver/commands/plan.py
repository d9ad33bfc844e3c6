"""`loaddriver plan`: prints the requests of a profile's load; starts nothing."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from loaddriver.commands.flags import profile_flags
from loaddriver.errors import ExitCode, ProfileError
from loaddriver.plan.files import plan_bytes
from loaddriver.plan.make import make_plan
from loaddriver.plan.text import plan_lines
from loaddriver.profile.loading import Profile, load_profile

# A plan holds every request body; up to this many pods fit in a few GiB.
_MAX_PODS = 1_000_000


def add(commands: Any) -> None:
    """Register the command."""
    command = commands.add_parser("plan", help="print every request of a profile; start nothing")
    profile_flags(command)
    command.add_argument(
        "--output",
        choices=("text", "json"),
        default="text",
        help="json: the lines of plan.jsonl, reproducible from profile and seed",
    )
    command.set_defaults(do=_plan)


def _plan(flags: argparse.Namespace) -> ExitCode:
    profile = load_profile(flags.profile, flags.profiles, flags.set, flags.seed)
    _check_plan_size(profile)
    plan = make_plan(profile)
    if flags.output == "json":
        sys.stdout.buffer.write(plan_bytes(plan))
    else:
        print("\n".join(plan_lines(plan, profile.settings)))
    return ExitCode.PASS


def _check_plan_size(profile: Profile) -> None:
    settings = profile.settings
    if settings.pods > _MAX_PODS:
        churn = settings.soak.churn_pods_per_second / settings.clusters
        raise ProfileError(
            [
                f"{profile.name}: a plan of {settings.pods:,} pods is too large to print; its "
                "clusters are alike, so print one: write --set clusters=1 "
                f"--set soak.churnPodsPerSecond={churn:.2g}"
            ]
        )
