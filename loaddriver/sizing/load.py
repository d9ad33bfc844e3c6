"""How many processes and hosts a plan's load needs, from what a request costs. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from loaddriver.plan.records import SETUP_STEP, ChurnEvent, Plan

REQUEST_CPU_SECONDS = 0.0012
"""CPU of the process that sends a request, TLS included, as measured in `dev-50` on full cores."""
# A worker has one thread: above half a core its requests are late as soon as several are due.
_WORKER_CORES = 0.5
_WINDOW_SECONDS = 10.0
# A churned pod is looked for before it is deleted.
_CHURN_REQUESTS = 2


@dataclass(frozen=True)
class LoadNeed:
    """The most requests per second that a plan has in ten seconds, and what sends them."""

    requests_per_second: float

    @property
    def cores(self) -> float:
        """The cores that it takes to send them."""
        return self.requests_per_second * REQUEST_CPU_SECONDS

    @property
    def workers(self) -> int:
        """The processes among which that can be divided."""
        return max(1, math.ceil(self.cores / _WORKER_CORES))

    def hosts(self, cores: int) -> int:
        """Hosts of so many cores beside the runner's; one process needs none of its own."""
        return math.ceil(self.workers / cores) if self.workers > 1 else 0


def load_need(plan: Plan) -> LoadNeed:
    """What a plan needs if its steps follow each other as fast as they may.

    The set-up has no due times to be met.
    """
    seconds = {step.number: step.seconds for step in plan.steps}
    requests: Counter[tuple[int, int]] = Counter()
    for event in plan.events:
        if event.step != SETUP_STEP:
            window = event.step, int(event.offset_seconds // _WINDOW_SECONDS)
            requests[window] += _CHURN_REQUESTS if isinstance(event, ChurnEvent) else 1
    rates = (
        number / min(_WINDOW_SECONDS, seconds[step] or 1.0)
        for (step, _), number in requests.items()
    )
    return LoadNeed(max(rates, default=0.0))


def churn_requests_per_second(pods_per_second: float) -> float:
    """The requests that delete so many pods."""
    return _CHURN_REQUESTS * pods_per_second


def load_lines(need: LoadNeed, workers: int, cores: int) -> Iterator[str]:
    """What a load needs, for people; the profile has so many `workers`, hosts have `cores`."""
    sends = f"load: at most {need.requests_per_second:,.0f} requests a second"
    if need.workers == 1:
        yield f"  {sends}, which one process can send"
    else:
        hosts = need.hosts(cores)
        yield (
            f"  {sends}: {need.workers} workers, on {hosts} host{'s' * (hosts > 1)} of {cores} "
            "cores beside the runner's"
        )
    if workers < need.workers:
        yield f"  load.workers is {workers}: requests will be late; write {need.workers}"
