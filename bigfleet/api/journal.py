"""The schema of a shard's journal: one JSON object a line, which people and the harness read.

Fields at their default are left out, and readers ignore fields that they do not know.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class JournalEvent(StrEnum):
    """What a line records. Lines up to DRAIN_UNANSWERED are about one order."""

    #: an order was issued
    DECIDED = "decided"
    #: an order ended without success; `note` has the outcome
    ORDER_FAILED = "order-failed"
    #: the operator was asked for a bootstrap blob
    BOOTSTRAP_REQUESTED = "bootstrap-requested"
    BOOTSTRAP_RECEIVED = "bootstrap-received"
    #: the operator was asked to drain the machine's Node
    RECLAIM_SENT = "reclaim-sent"
    RECLAIM_ACKNOWLEDGED = "reclaim-acknowledged"
    #: the provider was called
    CREATE_SENT = "create-sent"
    CONFIGURE_SENT = "configure-sent"
    DRAIN_SENT = "drain-sent"
    DELETE_SENT = "delete-sent"
    #: the provider did not answer a drain, which is repeated
    DRAIN_UNANSWERED = "drain-unanswered"
    #: a machine's state changed
    STATE = "state"
    #: a provider's listing was not believed
    LISTING_SUSPECT = "listing-suspect"
    #: a roll-up was received; `needs`, `sequence` and `requests` describe it
    ROLLUP_ACCEPTED = "rollup-accepted"
    ROLLUP_ACCEPTED_IN_PART = "rollup-accepted-in-part"
    ROLLUP_HELD = "rollup-held"
    ROLLUP_REJECTED = "rollup-rejected"
    #: an operator could not send its roll-up
    ROLLUP_TOO_LARGE = "rollup-too-large"
    #: a held roll-up took effect
    ROLLUP_RELEASED = "rollup-released"
    #: a need has been short for long; `lacks` says of what
    NEED_SHORT = "need-short"
    #: a need was left out, since deciding on it failed
    NEED_QUARANTINED = "need-quarantined"
    #: an administrator removed a cluster
    CLUSTER_REMOVAL = "cluster-removal"
    #: a full disk lost `count` lines
    LINES_LOST = "lines-lost"


class JournalLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line.

    A machine and `decided` identify an order, since a machine has at most one order at a time.
    """

    #: when it was recorded, in seconds since 1970
    at: float
    #: a JournalEvent, or that of a newer shard
    event: str
    #: id
    machine: str = ""
    #: name of a MachineState, or "GONE" for a machine that its provider no longer lists
    state: str = ""
    #: value of the order's ActionType
    action: str = ""
    #: the cluster that the machine goes to or is taken from, or that the line is about
    cluster: str = ""
    #: the cluster whose need the machine is chosen for
    claimant: str = ""
    #: when the order was decided, in seconds since 1970
    decided: float | None = None
    #: termination grace period of the pods on a machine that is taken, in seconds
    grace: float | None = None
    #: fingerprint of the need's profile
    need: str = ""
    #: text of the need's group
    group: str = ""
    #: why, for people
    note: str = ""
    #: number of needs of a roll-up
    needs: int | None = None
    #: timestamp of a roll-up, in nanoseconds since 1970
    sequence: int | None = None
    #: CapacityRequests that a roll-up's operator had observed since it started; 0 is unknown
    requests: int = 0
    #: Kubernetes quantities by resource name
    lacks: dict[str, str] | None = None
    #: number of lost lines
    count: int | None = None
    #: id of the shard
    shard: str = ""
    #: the shard's epoch, which grows with each of its starts
    epoch: int | None = None
