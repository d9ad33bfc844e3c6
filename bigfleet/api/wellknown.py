"""Labels, annotations and conditions by which BigFleet's parts, and people, know objects."""

from __future__ import annotations

# On every Node that joined with a blob of ours: the machine it is.
MACHINE_LABEL = "bigfleet.lucy.sh/machine"
# On a Node being emptied: when its machine will be taken anyway, in seconds since 1970.
RECLAIM_DEADLINE = "bigfleet.lucy.sh/reclaim-deadline"
# On a Node that we have cordoned to see what its reclaim would disturb; nothing is evicted yet.
RECLAIM_REVIEW = "bigfleet.lucy.sh/reclaim-review"

# Conditions of a CapacityRequest: the operator's, and the pod controller's.
CAPACITY_SHORT = "CapacityShort"
ADDITIONAL_CAPACITY = "AdditionalCapacityRequested"
# The reason for being short that no machine of the fleet could ever hold the pod.
NO_MATCHING_SUPPLY = "NoMatchingSupply"
# Other reasons, for which no machine was ever asked: its operator can make nothing of the request;
# all requests of the cluster together are too much for one message, or its shard refuses them.
INVALID = "Invalid"
ROLLUP_TOO_LARGE = "RollUpTooLarge"
ROLLUP_REJECTED = "RollUpRejected"
