"""CapacityRequests of a load without pods: their time to acknowledgement."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import compress

from loaddriver.judge.confidence import arrival_batches
from loaddriver.judge.percentiles import Quantiles, quantiles
from loaddriver.judge.schema import Requests
from loaddriver.record.requests import RequestRow


def requests_section(planned: int, rows: Sequence[RequestRow]) -> Requests | None:
    """The section; None for a load of pods, whose requests the pod controller creates."""
    if not planned and not rows:
        return None
    acknowledged = sum(row.acknowledged_micros is not None for row in rows)
    by_cluster: defaultdict[str, list[RequestRow]] = defaultdict(list)
    for row in rows:
        by_cluster[row.cluster].append(row)
    return Requests(
        planned=planned,
        created=len(rows),
        acknowledged=acknowledged,
        never_acknowledged=len(rows) - acknowledged,
        withdrawn=sum(r.acknowledged_micros is None and r.deleted_micros is not None for r in rows),
        due_to_ack_seconds=_waits(rows, _since_due),
        ack_latency_seconds=_waits(rows, _since_creation),
        clusters={name: _waits(by_cluster[name], _since_due) for name in sorted(by_cluster)},
    )


def _waits(rows: Sequence[RequestRow], waited: Callable[[RequestRow], float]) -> Quantiles:
    objects = [((row.cluster, row.group or row.workload), row.wait_began_micros) for row in rows]
    acknowledged = [row.acknowledged_micros is not None for row in rows]
    return quantiles(
        [waited(row) for row in rows if row.acknowledged_micros is not None],
        [waited(row) for row in rows if row.acknowledged_micros is None],
        list(compress(arrival_batches(objects), acknowledged)),
    )


def _since_due(row: RequestRow) -> float:
    return max(0, _waited_until_micros(row) - row.wait_began_micros) / 1e6


def _since_creation(row: RequestRow) -> float:
    return max(0, _waited_until_micros(row) - row.created_micros) / 1e6


def _waited_until_micros(row: RequestRow) -> int:
    """When it was acknowledged, else until when it was observed to wait."""
    return row.acknowledged_micros or row.deleted_micros or row.observed_until_micros
