"""Which pods are deleted during the soak, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from loaddriver.plan_workloads import Workload
from loaddriver.profile import Settings


@dataclass(frozen=True)
class ChurnDraw:
    """Delete the pod of rank `rank` of `workload`, `offset_seconds` into the soak."""

    offset_seconds: float
    workload: Workload
    rank: int


def churn_draws(settings: Settings, cluster: int, workloads: Sequence[Workload]) -> list[ChurnDraw]:
    """One cluster's deletions: an exact number, at Poisson times, every pod as likely.

    Jobs are left out: to their controller a deleted pod is a failed attempt,
    after which it backs off, so the rate would not be held.
    """
    lasting = [workload for workload in workloads if workload.kind != "Job"]
    if not lasting:
        return []
    random = Random(f"{settings.seed}/churn/{cluster}")
    offsets = sorted(
        round(random.uniform(0, settings.soak.seconds), 6)
        for _ in range(_deletions(settings, cluster))
    )
    weights = [workload.replicas for workload in lasting]
    victims = random.choices(lasting, weights, k=len(offsets))
    return [
        ChurnDraw(offset, victim, random.randrange(victim.replicas))
        for offset, victim in zip(offsets, victims, strict=True)
    ]


def _deletions(settings: Settings, cluster: int) -> int:
    """This cluster's part of all deletions, so that the parts add up."""
    total = round(settings.soak.churn_pods_per_second * settings.soak.seconds)
    return total // settings.clusters + (cluster < total % settings.clusters)
