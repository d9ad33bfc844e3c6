"""Every metric of BigFleet, named once. Names and labels are an interface to others."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REGISTRY = CollectorRegistry()

# 1 ms to 524 s: a value above the last bound would be reported as a lower bound only.
_SECONDS = tuple(0.001 * 2**n for n in range(20))


def _histogram(name: str, help_text: str, *labels: str) -> Histogram:
    return Histogram(name, help_text, labels, registry=REGISTRY, buckets=_SECONDS)


def _counter(name: str, help_text: str, *labels: str) -> Counter:
    return Counter(name, help_text, labels, registry=REGISTRY)


def _gauge(name: str, help_text: str, *labels: str) -> Gauge:
    return Gauge(name, help_text, labels, registry=REGISTRY)


internal_errors = _counter(
    "bigfleet_internal_errors_total",
    "Bugs met at single objects, which are tried again; see the log",
)
shard_cycle_seconds = _histogram(
    "bigfleet_shard_cycle_duration_seconds", "Whole decision cycles, reconcile to enqueue"
)
shard_cycle_phase_seconds = _histogram(
    "bigfleet_shard_cycle_phase_duration_seconds", "Parts of a cycle", "phase"
)
shard_cycle_failures = _counter(
    "bigfleet_shard_cycle_failures_total", "Cycles that ended early", "reason"
)
shard_inventory = _gauge("bigfleet_shard_inventory_machines", "Machines by state", "state")
shard_demand_needs = _gauge("bigfleet_shard_demand_needs", "Needs in the needs table")
shard_shortfalls = _gauge("bigfleet_shard_shortfalls", "Needs that all supply does not cover")
shard_shortfalls_aged = _gauge(
    "bigfleet_shard_shortfalls_aged", "Shortfalls older than five cycles"
)
shard_clusters_suspended = _gauge(
    "bigfleet_shard_clusters_suspended",
    "Clusters for which nothing is acquired: silent, absent, or their machines do not boot",
)
shard_needs_at_ceiling = _gauge(
    "bigfleet_shard_needs_at_ceiling",
    "Needs that lack machines because their cluster may have no more",
)
shard_needs_capped_priority = _gauge(
    "bigfleet_shard_needs_capped_priority",
    "Needs that are served by a lower priority than they claim, as their cluster has a ceiling",
)
shard_ceilings_rejected = _gauge(
    "bigfleet_shard_ceilings_rejected",
    "1 while the file of cluster ceilings is bad, so that older ones are in force",
)
shard_offerings_in_backoff = _gauge(
    "bigfleet_shard_offerings_in_backoff",
    "Offerings in back-off after failures: not bought for now",
)
shard_needs_quarantined = _gauge(
    "bigfleet_shard_needs_quarantined", "Needs left out because no decision can be made about them"
)
shard_nodes_draining = _gauge(
    "bigfleet_shard_nodes_draining", "Machines whose Nodes are being emptied"
)
shard_limited_machines = _gauge(
    "bigfleet_shard_limited_machines", "Machines whose Nodes take no new pods", "reason"
)
shard_node_limits_rejected = _counter(
    "bigfleet_shard_node_limits_rejected_total", "Reported node limits that make no sense"
)
shard_actions_suppressed = _counter(
    "bigfleet_shard_actions_suppressed_total", "Decided while actuation was paused", "type"
)
shard_actions = _counter("bigfleet_shard_actions_total", "Orders enqueued", "type")
shard_action_outcomes = _counter(
    "bigfleet_shard_action_execute_outcomes_total", "Orders carried out", "type", "outcome"
)
shard_action_seconds = _histogram(
    "bigfleet_shard_action_duration_seconds", "From enqueue to the provider's answer", "type"
)
shard_queue_depth = _gauge("bigfleet_shard_action_queue_depth", "Orders that are being carried out")
shard_actions_dropped = _counter(
    "bigfleet_shard_actions_dropped_total", "Orders not enqueued, re-derived next cycle"
)
shard_reclaims_capped = _counter(
    "bigfleet_shard_reclaims_capped_total", "Reclaims held back by the cap per cycle"
)
shard_configure_seconds = _histogram(
    "bigfleet_shard_configure_phase_seconds", "Machine from the order to configure to CONFIGURED"
)
shard_bootstrap_seconds = _histogram(
    "bigfleet_shard_request_bootstrap_seconds", "Asking an operator for a bootstrap blob"
)
shard_journal_lines_lost = _counter(
    "bigfleet_shard_journal_lines_lost_total", "Journal lines that the disk did not take in time"
)
shard_sessions = _gauge("bigfleet_shard_active_sessions", "Operators connected")
shard_stalled_sessions = _counter(
    "bigfleet_shard_stalled_sessions_total",
    "Sessions broken off because their operators read nothing",
)
shard_rollups = _counter("bigfleet_shard_rollups_total", "Roll-ups received", "outcome")
shard_demand_not_persisted = _gauge(
    "bigfleet_shard_demand_not_persisted",
    "1 while a restart would not know what clusters asked for",
)
shard_rollup_entries_rejected = _counter(
    "bigfleet_shard_rollup_entries_rejected_total",
    "Needs and node overheads left out of roll-ups as senseless",
)
shard_unexpected_transitions = _counter(
    "bigfleet_shard_unexpected_transitions_total",
    "Provider states taken over although the lifecycle has no such move",
    "move",
)
shard_machines_rejected = _counter(
    "bigfleet_shard_machines_rejected_total", "Provider records that cannot be right"
)
shard_listings_suspect = _counter(
    "bigfleet_shard_listings_suspect_total", "Full listings that lacked most machines at once"
)
shard_incidents = _counter(
    "bigfleet_shard_incidents_total",
    "Orders of or to somebody deposed: refused, and to be looked into",
    "type",
)
shard_instructions = _counter(
    "bigfleet_shard_instructions_total", "Instructions of the coordinator", "type", "outcome"
)
shard_coordinator_reports = _counter(
    "bigfleet_shard_coordinator_reports_total", "Reports to the coordinator", "outcome"
)
shard_coordinator_term = _gauge(
    "bigfleet_shard_coordinator_term", "Newest term of a coordinator that was heard of"
)
shard_machines_of_other_shards = _gauge(
    "bigfleet_shard_machines_of_other_shards", "Machines seen here that other shards decide about"
)
shard_owned_domains = _gauge("bigfleet_shard_owned_domains", "Domains that this shard owns")
shard_redirects = _counter(
    "bigfleet_shard_redirects_total", "Operators that were sent to another shard"
)

provider_orders_fenced = _counter(
    "bigfleet_provider_orders_fenced_total", "Orders refused because their shard has been replaced"
)

coordinator_raft_term = _gauge("bigfleet_coordinator_raft_term", "The term of the etcd cluster")
coordinator_is_leader = _gauge("bigfleet_coordinator_is_leader", "1 while this replica leads")
coordinator_elections = _counter(
    "bigfleet_coordinator_elections_total",
    (
        "Times that this replica took over, by what its predecessor was doing then; "
        "`healthy` is a fault"
    ),
    "predecessor",
)
coordinator_etcd_restarts = _counter(
    "bigfleet_coordinator_etcd_restarts_total", "Times that the etcd member had to be started again"
)
coordinator_commits = _counter("bigfleet_coordinator_commits_total", "Transactions", "outcome")
coordinator_commit_seconds = _histogram(
    "bigfleet_coordinator_commit_duration_seconds", "Transactions, etcd's answer included"
)
coordinator_instructions = _counter(
    "bigfleet_coordinator_instructions_total", "Orders put into answers to shards"
)
coordinator_incidents = _counter(
    "bigfleet_coordinator_incidents_total", "What should not be, seen in shards' reports", "type"
)

provider_transitions = _counter(
    "bigfleet_provider_transitions_total", "Machine transitions completed", "event"
)
provider_machines = _gauge("bigfleet_provider_machines", "Machines by state", "state")

controller_is_leader = _gauge(
    "bigfleet_controller_is_leader", "1 while this process holds its Lease and works, 0 on standby"
)
operator_rollup_seconds = _histogram(
    "bigfleet_operator_rollup_duration_seconds", "Parts of a roll-up", "phase"
)
operator_rollup_bytes = _gauge("bigfleet_operator_rollup_bytes", "Size of the last roll-up sent")
operator_rollup_needs = _gauge("bigfleet_operator_rollup_needs", "Needs in the last roll-up")
operator_rollups_rejected = _counter(
    "bigfleet_operator_rollups_rejected_total", "Roll-ups that the shard refused"
)
operator_needs_rejected = _gauge(
    "bigfleet_operator_needs_rejected", "Needs of the last roll-up that the shard could not take"
)
operator_acknowledged = _counter(
    "bigfleet_operator_acknowledged_total", "CapacityRequests acknowledged"
)
operator_short_conditions = _counter(
    "bigfleet_operator_short_conditions_total",
    "Conditions CapacityShort written on CapacityRequests",
    "status",
)
operator_reconnects = _counter(
    "bigfleet_operator_session_reconnects_total", "Sessions that had to be opened again"
)
operator_redirects = _counter(
    "bigfleet_operator_session_redirects_total", "Times that a shard named another one"
)
operator_node_updates = _counter(
    "bigfleet_operator_node_state_updates_total", "Node state updates handled", "state"
)
operator_invalid_requests = _gauge(
    "bigfleet_operator_invalid_requests", "CapacityRequests left out because they make no sense"
)
operator_disruption_reports = _counter(
    "bigfleet_operator_disruption_reports_total",
    "Answers to the shard's question what a reclaim would disturb, by who knew what is free",
    "source",
)
operator_reclaims_refused = _counter(
    "bigfleet_operator_reclaims_refused_total", "Reclaims that were not begun", "reason"
)
operator_limited_nodes = _gauge(
    "bigfleet_operator_limited_nodes", "Machines whose Nodes take no new pods", "reason"
)
operator_broken_nodes = _gauge(
    "bigfleet_operator_broken_nodes", "Machines reported to be given back because they are broken"
)
operator_orphaned_nodes = _gauge(
    "bigfleet_operator_orphaned_nodes", "Nodes with our label whose machine the shard does not know"
)
operator_evictions = _counter("bigfleet_operator_evictions_total", "Evictions", "outcome")

pod_controller_requests = _counter(
    "bigfleet_pod_controller_requests_total", "CapacityRequests written", "operation", "outcome"
)
pod_controller_unschedulable = _gauge(
    "bigfleet_pod_controller_unschedulable_pods", "Pods that kube-scheduler finds no place for"
)
pod_controller_additional = _counter(
    "bigfleet_pod_controller_additional_requests_total",
    "Additional machines asked for, by how many its pod had asked for then",
    "number",
)
pod_controller_events = _counter(
    "bigfleet_pod_controller_events_total", "Events written on Pods", "reason"
)
pod_controller_review_seconds = _histogram(
    "bigfleet_pod_controller_review_duration_seconds",
    "Finding the Nodes that can be given back, without the time until it begins",
)
pod_controller_unsupported_constraints = _counter(
    "bigfleet_pod_controller_unsupported_constraints_total",
    "Pods seen with a wish that no CapacityRequest carries",
    "field",
)

federation_reconcile_seconds = _histogram(
    "bigfleet_fedhpa_reconcile_duration_seconds", "One look at one federated HPA"
)
fedhpa_moves = _counter(
    "bigfleet_fedhpa_moves_total", "Shares of federated HPAs changed in members", "reason"
)
fedhpa_failures = _counter(
    "bigfleet_fedhpa_failures_total", "Writes into members that failed", "member"
)
fedhpa_reachable = _gauge(
    "bigfleet_fedhpa_member_reachable", "1 while the member answers", "member"
)
identity_expires = _gauge(
    "bigfleet_identity_expires_timestamp_seconds", "When the certificate in use expires", "name"
)
calls_denied = _counter(
    "bigfleet_calls_denied_total", "Calls whose caller may not make them", "reason"
)
handshakes_failed = _counter(
    "bigfleet_tls_handshakes_failed_total", "Connections that ended before any call", "reason"
)
