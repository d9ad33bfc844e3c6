"""Well-known labels, annotations and condition types of BigFleet."""

from __future__ import annotations

OUR_DOMAIN = "bigfleet.lucy.sh"
# On the CapacityRequest of a Pod.
POD_UID_LABEL = "bigfleet.lucy.sh/pod-uid"
# On every Node that joined with BigFleet's bootstrap blob: its machine.
MACHINE_LABEL = "bigfleet.lucy.sh/machine"
# On a Node that is being drained: when its machine will be taken anyway, in Unix time.
RECLAIM_DEADLINE = "bigfleet.lucy.sh/reclaim-deadline"
# On a Node that is cordoned while its reclaim's disruption is reviewed; nothing is evicted yet.
RECLAIM_REVIEW = "bigfleet.lucy.sh/reclaim-review"
# Key of the taint of a Node whose machine may be released soon.
SURPLUS_TAINT = "bigfleet.lucy.sh/surplus"

# Condition types of a CapacityRequest, written by the operator and by the pod controller.
CAPACITY_SHORT = "CapacityShort"
ADDITIONAL_CAPACITY = "AdditionalCapacityRequested"
# Reason of CapacityShort: no machine of the fleet could ever fit the pod.
NO_MATCHING_SUPPLY = "NoMatchingSupply"
# Reason of CapacityShort: there are machines, but not where the pods' topology requires them.
TOPOLOGY_UNSATISFIABLE = "TopologyUnsatisfiable"
# Other reasons, for requests that never reached the shard: the request is invalid, the cluster's
# roll-up exceeds the message size limit, or the shard rejects it.
INVALID = "Invalid"
ROLLUP_TOO_LARGE = "RollUpTooLarge"
ROLLUP_REJECTED = "RollUpRejected"
