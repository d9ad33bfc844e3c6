"""Every waiting time of the suite, each in one place.

Production settings are minutes. Here everything an autoscaler waits for takes seconds, so that a
few seconds in which nothing happens mean something.
"""

from __future__ import annotations

# What the provider takes to create, configure, drain or delete a machine.
PROVIDER_SECONDS = 1.0

# So long at most a Node waits for the pods of its DaemonSets before it is Ready.
NETWORK_TIMEOUT_SECONDS = 15.0

# By then whoever is going to do something about what it saw has visibly begun: a Node has come or
# been cordoned, a pod has been evicted. Every system must be set up so that its own periods and
# holds add up to less than this. A shorter quiet would pass whatever happens.
REACTION_SECONDS = 5.0

# How long a scenario may wait for what it expects, unless it says so itself: several reactions,
# each with a second for which kube-scheduler leaves a pod alone that it could not place.
DEFAULT_TIMEOUT_SECONDS = 45.0

# Steps repeat what the API server refuses for the moment, and an eviction that a budget forbids.
STEP_TIMEOUT_SECONDS = 45.0

# After a scenario its objects are deleted; by then its machines must be back, too. On a busy
# machine three hundred pods alone take half a minute to end.
RESET_TIMEOUT_SECONDS = 90.0

# Between two looks at something that must come to hold.
POLL_INTERVAL_SECONDS = 0.1

# Between two looks for which everything, or a whole fleet, must be listed.
LIST_INTERVAL_SECONDS = 0.5
