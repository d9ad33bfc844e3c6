"""The longest lists of a shard's report: the shard keeps to them, the coordinator insists on them.

What is left out is counted in the report.
"""

MAX_SHORTFALLS = 100
MAX_FREE_DOMAINS = 10
"""With free machines that would help, for each shortfall; the best for a hundred are some 60 KB."""
MAX_DRAINABLE_DOMAINS = 3
"""With machines in service that would help if they were drained, for each shortfall."""
MAX_HELPFUL_DOMAINS = MAX_FREE_DOMAINS + MAX_DRAINABLE_DOMAINS
MAX_DRAINED_MACHINES = 20
DRAIN_AGE_CYCLES = 20
"""Draining is dear: such machines are named for, and drained for, older shortfalls only."""
MAX_UNOWNED_DOMAINS = 1000
MAX_OUT_OF_DOMAIN = 100
MAX_QUOTA_SHORTAGES = 10
MAX_SPLITS = 20
MAX_REMOVALS = 1000
MAX_MOVABLE_DOMAINS = 100
