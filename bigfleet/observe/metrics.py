"""All metrics of BigFleet. Their names and labels are a public interface."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from bigfleet.observe.child_processes import ChildProcesses

# With the names that collectors only tell when they collect, so that they can be asked for.
REGISTRY = CollectorRegistry(auto_describe=True)
# As every client of Prometheus: CPU, memory and open files of the process itself.
ProcessCollector(registry=REGISTRY)
REGISTRY.register(ChildProcesses())

# 1 ms to 524 s, four buckets for each doubling: a quantile interpolated in its bucket is off by a
# fifth at most. One above the last bound is only known as a lower bound.
_SECONDS = tuple(float(f"{0.001 * 2 ** (n / 4):.4g}") for n in range(77))


def _histogram(name: str, help_text: str, *labels: str) -> Histogram:
    return Histogram(name, help_text, labels, registry=REGISTRY, buckets=_SECONDS)


def _counter(name: str, help_text: str, *labels: str) -> Counter:
    return Counter(name, help_text, labels, registry=REGISTRY)


def _gauge(name: str, help_text: str, *labels: str) -> Gauge:
    return Gauge(name, help_text, labels, registry=REGISTRY)


internal_errors = _counter(
    "bigfleet_internal_errors_total",
    "Internal errors on single objects, which are retried; see the log",
)
shard_cycle_seconds = _histogram(
    "bigfleet_shard_cycle_duration_seconds",
    "Duration of decision cycles, from reconcile to enqueue",
)
shard_cycle_phase_seconds = _histogram(
    "bigfleet_shard_cycle_phase_duration_seconds",
    "Duration of each phase of a decision cycle",
    "phase",
)
shard_decision_cpu_seconds = _histogram(
    "bigfleet_shard_decision_cpu_seconds", "CPU time of the decision of each cycle"
)
shard_cycle_failures = _counter(
    "bigfleet_shard_cycle_failures_total", "Decision cycles that failed", "reason"
)
shard_inventory = _gauge("bigfleet_shard_inventory_machines", "Machines by state", "state")
shard_demand_needs = _gauge("bigfleet_shard_demand_needs", "Needs in the needs table")
shard_shortfalls = _gauge("bigfleet_shard_shortfalls", "Needs that the supply does not cover")
shard_shortfalls_aged = _gauge(
    "bigfleet_shard_shortfalls_aged", "Shortfalls older than five cycles"
)
shard_clusters_suspended = _gauge(
    "bigfleet_shard_clusters_suspended",
    "Clusters for which nothing is acquired: operator silent or absent, or machines do not boot",
)
shard_needs_at_ceiling = _gauge(
    "bigfleet_shard_needs_at_ceiling",
    "Needs short of machines because their cluster is at its ceiling",
)
shard_needs_capped_priority = _gauge(
    "bigfleet_shard_needs_capped_priority",
    "Needs served at a lower priority than requested, because of their cluster's ceiling",
)
shard_ceilings_rejected = _gauge(
    "bigfleet_shard_ceilings_rejected",
    "1 while the file of cluster ceilings is invalid and the previous ceilings are in force",
)
shard_offerings_in_backoff = _gauge(
    "bigfleet_shard_offerings_in_backoff",
    "Offerings in backoff after a failure",
)
shard_needs_quarantined = _gauge(
    "bigfleet_shard_needs_quarantined", "Needs left out of decisions because of an internal error"
)
shard_nodes_draining = _gauge(
    "bigfleet_shard_nodes_draining", "Machines whose Nodes are being drained"
)
shard_limited_machines = _gauge(
    "bigfleet_shard_limited_machines", "Machines whose Nodes accept no new pods", "reason"
)
shard_node_limits_rejected = _counter(
    "bigfleet_shard_node_limits_rejected_total", "Invalid node limits in reports"
)
shard_actions_suppressed = _counter(
    "bigfleet_shard_actions_suppressed_total", "Actions decided while actuation was paused", "type"
)
shard_actions = _counter("bigfleet_shard_actions_total", "Actions enqueued", "type")
shard_action_outcomes = _counter(
    "bigfleet_shard_action_execute_outcomes_total", "Actions executed", "type", "outcome"
)
shard_action_seconds = _histogram(
    "bigfleet_shard_action_duration_seconds", "Time from enqueue to the provider's response", "type"
)
shard_queue_depth = _gauge("bigfleet_shard_action_queue_depth", "Actions in progress")
shard_actions_dropped = _counter(
    "bigfleet_shard_actions_dropped_total",
    "Actions dropped because the queue was full; decided again in the next cycle",
)
shard_reclaims_capped = _counter(
    "bigfleet_shard_reclaims_capped_total", "Reclaims deferred by the per-cycle cap"
)
shard_configure_seconds = _histogram(
    "bigfleet_shard_configure_phase_seconds", "Time from the configure action to CONFIGURED"
)
shard_bootstrap_seconds = _histogram(
    "bigfleet_shard_request_bootstrap_seconds", "Duration of bootstrap requests to operators"
)
shard_journal_lines_lost = _counter(
    "bigfleet_shard_journal_lines_lost_total",
    "Journal lines lost because the disk was full or slow",
)
shard_sessions = _gauge("bigfleet_shard_active_sessions", "Operators connected")
shard_stalled_sessions = _counter(
    "bigfleet_shard_stalled_sessions_total",
    "Sessions closed because the operator did not read",
)
shard_rollups = _counter("bigfleet_shard_rollups_total", "Roll-ups received", "outcome")
shard_demand_not_persisted = _gauge(
    "bigfleet_shard_demand_not_persisted",
    "1 while the demand of clusters is not stored and a restart would lose it",
)
shard_needs_left_out = _gauge(
    "bigfleet_shard_needs_left_out", "Needs left out because their clusters request too much"
)
shard_rollup_entries_rejected = _counter(
    "bigfleet_shard_rollup_entries_rejected_total",
    "Invalid needs and node overheads in roll-ups",
)
shard_unexpected_transitions = _counter(
    "bigfleet_shard_unexpected_transitions_total",
    "Machine states accepted from the provider although the lifecycle has no such transition",
    "move",
)
shard_machines_rejected = _counter(
    "bigfleet_shard_machines_rejected_total", "Invalid machine records from the provider"
)
shard_providers_silent = _gauge(
    "bigfleet_shard_providers_silent",
    "Providers that do not answer in time, and whose machines are held, while others do",
)
shard_machine_ids_colliding = _gauge(
    "bigfleet_shard_machine_ids_colliding",
    "Machine ids that two providers list, and for which nothing is ordered",
)
shard_listings_suspect = _counter(
    "bigfleet_shard_listings_suspect_total",
    "Full listings rejected because most machines were missing",
)
shard_incidents = _counter(
    "bigfleet_shard_incidents_total",
    "Fenced calls: from or to a process that has been replaced",
    "type",
)
shard_instructions = _counter(
    "bigfleet_shard_instructions_total", "Instructions from the coordinator", "type", "outcome"
)
shard_coordinator_reports = _counter(
    "bigfleet_shard_coordinator_reports_total", "Reports to the coordinator", "outcome"
)
shard_coordinator_term = _gauge(
    "bigfleet_shard_coordinator_term", "Newest term of the coordinator seen"
)
shard_machines_of_other_shards = _gauge(
    "bigfleet_shard_machines_of_other_shards", "Machines owned by other shards"
)
shard_owned_domains = _gauge("bigfleet_shard_owned_domains", "Domains that this shard owns")
shard_redirects = _counter(
    "bigfleet_shard_redirects_total", "Operators redirected to another shard"
)

provider_orders_fenced = _counter(
    "bigfleet_provider_orders_fenced_total",
    "Calls rejected because the calling shard has been replaced",
)

coordinator_raft_term = _gauge("bigfleet_coordinator_raft_term", "The term of the etcd cluster")
coordinator_is_leader = _gauge("bigfleet_coordinator_is_leader", "1 while this replica leads")
# The state of a previous leader that should not have been replaced.
HEALTHY_PREDECESSOR = "healthy"
coordinator_elections = _counter(
    "bigfleet_coordinator_elections_total",
    (
        "Times that this replica became leader, by the state of the previous leader; "
        f"`{HEALTHY_PREDECESSOR}` indicates a fault"
    ),
    "predecessor",
)
coordinator_etcd_restarts = _counter(
    "bigfleet_coordinator_etcd_restarts_total", "Restarts of the etcd member"
)
coordinator_commits = _counter("bigfleet_coordinator_commits_total", "Transactions", "outcome")
coordinator_commit_seconds = _histogram(
    "bigfleet_coordinator_commit_duration_seconds", "Duration of etcd transactions"
)
coordinator_instructions = _counter(
    "bigfleet_coordinator_instructions_total", "Instructions sent to shards"
)
coordinator_domains_moved = _counter(
    "bigfleet_coordinator_domains_moved_total",
    "Domains moved by the coordinator itself, by cause",
    "cause",
)
coordinator_quota_moved = _counter(
    "bigfleet_coordinator_quota_machines_moved_total",
    "Machines by which the coordinator itself moved quotas between shards, by cause",
    "cause",
)
coordinator_incidents = _counter(
    "bigfleet_coordinator_incidents_total", "Incidents detected in shard reports, by type", "type"
)

provider_transitions = _counter(
    "bigfleet_provider_transitions_total", "Machine transitions completed", "event"
)
provider_machines = _gauge("bigfleet_provider_machines", "Machines by state", "state")
provider_price_changes = _counter(
    "bigfleet_provider_price_changes_total", "Machines whose price the market file has changed"
)
provider_interruptions = _counter(
    "bigfleet_provider_interruptions_total", "Spot machines in service that were interrupted"
)

controller_is_leader = _gauge(
    "bigfleet_controller_is_leader", "1 while this process holds its Lease, 0 on standby"
)
operator_rollup_seconds = _histogram(
    "bigfleet_operator_rollup_duration_seconds", "Duration of each phase of a roll-up", "phase"
)
operator_rollup_bytes = _gauge("bigfleet_operator_rollup_bytes", "Size of the last roll-up sent")
operator_rollup_needs = _gauge("bigfleet_operator_rollup_needs", "Needs in the last roll-up")
operator_rollups_rejected = _counter(
    "bigfleet_operator_rollups_rejected_total", "Roll-ups rejected by the shard"
)
operator_needs_rejected = _gauge(
    "bigfleet_operator_needs_rejected", "Needs of the last roll-up rejected by the shard"
)
operator_acknowledged = _counter(
    "bigfleet_operator_acknowledged_total", "CapacityRequests acknowledged"
)
operator_short_conditions = _counter(
    "bigfleet_operator_short_conditions_total",
    "CapacityShort conditions written to CapacityRequests",
    "status",
)
operator_reconnects = _counter("bigfleet_operator_session_reconnects_total", "Sessions reopened")
operator_redirects = _counter(
    "bigfleet_operator_session_redirects_total", "Redirects to another shard"
)
operator_node_updates = _counter(
    "bigfleet_operator_node_state_updates_total", "Node state updates handled", "state"
)
operator_invalid_requests = _gauge(
    "bigfleet_operator_invalid_requests", "Invalid CapacityRequests, left out of roll-ups"
)
operator_disruption_reports = _counter(
    "bigfleet_operator_disruption_reports_total",
    "Responses to disruption inquiries of the shard, by the source of free capacity",
    "source",
)
operator_reclaims_refused = _counter(
    "bigfleet_operator_reclaims_refused_total", "Reclaims refused", "reason"
)
operator_limited_nodes = _gauge(
    "bigfleet_operator_limited_nodes", "Machines whose Nodes accept no new pods", "reason"
)
operator_broken_nodes = _gauge(
    "bigfleet_operator_broken_nodes", "Machines reported as broken, to be released"
)
operator_orphaned_nodes = _gauge(
    "bigfleet_operator_orphaned_nodes",
    "Nodes labelled by BigFleet whose machine the shard does not know",
)
operator_evictions = _counter("bigfleet_operator_evictions_total", "Evictions", "outcome")

pod_controller_requests = _counter(
    "bigfleet_pod_controller_requests_total", "CapacityRequests written", "operation", "outcome"
)
pod_controller_unschedulable = _gauge(
    "bigfleet_pod_controller_unschedulable_pods", "Pods that kube-scheduler cannot schedule"
)
pod_controller_additional = _counter(
    "bigfleet_pod_controller_additional_requests_total",
    "Additional machines requested, by the number that the pod has requested so far",
    "number",
)
pod_controller_nominations = _counter(
    "bigfleet_pod_controller_nominations_total",
    "New Nodes nominated for pods of gangs that have requested one",
)
pod_controller_events = _counter(
    "bigfleet_pod_controller_events_total", "Events recorded on Pods", "reason"
)
pod_controller_review_seconds = _histogram(
    "bigfleet_pod_controller_review_duration_seconds",
    "Duration of the search for releasable Nodes, without queueing",
)
pod_controller_unsupported_constraints = _counter(
    "bigfleet_pod_controller_unsupported_constraints_total",
    "Pods with a constraint that CapacityRequests cannot express",
    "field",
)

fedhpa_reconcile_seconds = _histogram(
    "bigfleet_fedhpa_reconcile_duration_seconds", "Duration of a reconcile of one federated HPA"
)
fedhpa_moves = _counter(
    "bigfleet_fedhpa_moves_total", "Shares of federated HPAs changed in members", "reason"
)
fedhpa_failures = _counter(
    "bigfleet_fedhpa_failures_total", "Failed writes to member clusters", "member"
)
fedhpa_reachable = _gauge(
    "bigfleet_fedhpa_member_reachable", "1 while the member cluster is reachable", "member"
)
identity_expires = _gauge(
    "bigfleet_identity_expires_timestamp_seconds",
    "Expiry of the certificate in use, Unix time",
    "name",
)
calls_denied = _counter("bigfleet_calls_denied_total", "Calls rejected by authorization", "reason")
handshakes_failed = _counter(
    "bigfleet_tls_handshakes_failed_total", "Failed TLS handshakes", "reason"
)
