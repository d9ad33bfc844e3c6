"""Whether every milestone of the waits was observed, without which hops are not what they say.

The time of a hop whose end is unknown counts towards the next one, so that a missing milestone
moves time to a component that did not spend it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from loaddriver.record.hops import HOPS
from loaddriver.record.journal import Journal
from loaddriver.record.rows import PodRow


class Milestones(msgspec.Struct, frozen=True, rename="camel"):
    """The bound pods that waited for their node, how many of them have all milestones, and how
    many lack the end of each hop. A pod that the plan did not ask for needs no due time.
    """

    waited_pods: int
    complete: int
    missing: Mapping[str, int]

    @property
    def missing_share(self) -> float:
        """The share of pods that lack a milestone, 0 to 1; 0 if none waited."""
        return (self.waited_pods - self.complete) / self.waited_pods if self.waited_pods else 0.0


def milestones_section(rows: Sequence[PodRow], journal: Journal | None) -> Milestones | None:
    """The section; None without a shard's journal, which has most of the milestones."""
    if journal is None:
        return None
    waited = [row for row in rows if row.bound_micros is not None and row.node_was_ready is False]
    lacking = [set(_lacking(row)) for row in waited]
    missing = Counter(hop for hops in lacking for hop in hops)
    return Milestones(
        waited_pods=len(waited),
        complete=sum(not hops for hops in lacking),
        missing={hop: missing[hop] for hop in HOPS if missing[hop]},
    )


def _lacking(row: PodRow) -> Iterator[str]:
    ends = {
        "seen": row.seen_micros,
        "rolledUp": row.rolled_up_micros,
        "decided": row.decided_micros,
        "provisioned": row.provisioned_micros,
        "nodeReady": row.node_ready_micros,
    }
    return (hop for hop, end in ends.items() if end is None)
