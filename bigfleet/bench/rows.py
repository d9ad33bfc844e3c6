"""What the benchmark measures, and the targets."""

from __future__ import annotations

from bigfleet.bench.decisions import Decisions
from bigfleet.bench.measured import Row
from bigfleet.bench.rollups import RollUpsApplied, RollUpsBuilt
from bigfleet.bench.worlds import WorldSpec

# In these machines and needs grow together, and clusters keep their size.
_SIZES = (
    ("50K machines, 600 needs", 50_000, 600, None),
    ("500K machines, 6K needs", 500_000, 6_000, 0.05),
    ("1M machines, 12K needs", 1_000_000, 12_000, None),
)
_CHANGES = (("light", 0.0005, 0.01), ("1 %", 0.01, 0.01), ("10 %", 0.1, 0.1))
GROWTH = tuple(
    Decisions(
        f"{size}, {change}",
        WorldSpec(machines, needs, clusters=machines // 2_500),
        lost,
        changed,
        None if change == "10 %" else target,
    )
    for size, machines, needs, target in _SIZES
    for change, lost, changed in _CHANGES
)
_GANGS = WorldSpec(225_000, 42_000, gang_share=0.93, gang_pods=4, utilization=0.7)
_ODD = 50_000, 600
ROWS: tuple[Row, ...] = (
    Decisions("small", WorldSpec(500, 60, clusters=4), 0.01, 0.01),
    Decisions("50K machines, 2K needs", WorldSpec(50_000, 2_000, clusters=40), 0.0025, 0.01),
    Decisions(
        "12.5K machines, 4K needs, answered",
        WorldSpec(12_500, 4_000, clusters=125, spread_share=0.2),
        0.0005,
        0.001,
        answered=True,
    ),
    *GROWTH,
    Decisions("225K machines, 42K needs, 93 % gangs, folded", _GANGS, 0.0025, 0.01, 0.025),
    Decisions(
        "225K machines, 42K needs, 93 % gangs, unfolded", _GANGS, 0.0025, 0.01, 0.075, fold=False
    ),
    Decisions(
        "500K machines, 42K needs, cold start", WorldSpec(500_000, 42_000), 0, 0, 2.0, cold=True
    ),
    Decisions(
        "100K machines, 1,200 needs, 12 % replaced",
        WorldSpec(100_000, 1_200, clusters=40),
        0.12,
        0,
        1.0,
        least_orders=5_000,
    ),
    # What fleets are not like.
    Decisions(
        "odd: all needs alike",
        WorldSpec(*_ODD, clusters=600, gang_share=0, spread_share=0),
        0.01,
        0.01,
    ),
    Decisions(
        "odd: no two machines alike",
        WorldSpec(*_ODD, clusters=20, unlike_machines=True),
        0.01,
        0.01,
    ),
    Decisions("odd: one rack", WorldSpec(*_ODD, clusters=20, machines_per_rack=50_000), 0.01, 0.01),
    Decisions(
        "odd: every need a priority of its own",
        WorldSpec(*_ODD, clusters=20, distinct_priorities=True),
        0.01,
        0.01,
    ),
    Decisions("odd: 100K needs", WorldSpec(50_000, 100_000, clusters=1_000), 0.01, 0.01),
    Decisions("odd: everything short", WorldSpec(*_ODD, clusters=20, utilization=3.0), 0.01, 0.01),
    RollUpsApplied("roll-up of 210 needs applied, 1 % changed", needs=210, target_seconds=0.0005),
    RollUpsBuilt("roll-up of 25K co-located requests built", requests=25_000, target_seconds=0.05),
)
