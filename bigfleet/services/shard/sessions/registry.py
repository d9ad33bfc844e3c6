"""The open sessions by cluster, and the handling of operators' messages."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection, Iterator, Sequence

from bigfleet.api.v1alpha1 import capacity_pb2, shard_pb2
from bigfleet.model.errors import InvalidInput
from bigfleet.model.machine import is_valid_id
from bigfleet.observe import metrics
from bigfleet.services.shard.sessions.session import Ending, Session

_LOG = logging.getLogger(__name__)
# As long as a Kubernetes name.
MAX_CLUSTER_ID = 253

# As many machines as one cluster can hold.
MAX_ASKED = 100_000
# More than any grace period of the engine.
MAX_GRACE_SECONDS = 3600

# Applies a roll-up of the named cluster; returns the acknowledgement, with what is not in force.
TakeRollUp = Callable[[str, capacity_pb2.ClusterCapacityNeeds], shard_pb2.Acknowledgement]
# Records a roll-up that is too large to be sent; returns the message for the operator.
NoteTooLargeRollUp = Callable[[str, shard_pb2.RollUpTooLarge], str]
# Takes the disruption costs reported by the named cluster's operator.
TakeDisruptions = Callable[[str, shard_pb2.DisruptionReport], None]
# The first messages of a session: the state of every machine bound to the cluster.
Replay = Callable[[str], Iterator[shard_pb2.ShardMessage]]

# Updates about a machine for the operator of a cluster; None when its state is not settled yet.
AnswerInquiry = Callable[[str, str], Sequence[shard_pb2.ShardMessage] | None]


def check(hello: shard_pb2.Hello) -> str:
    """The cluster id of a Hello; InvalidInput for an invalid name."""
    return check_name("Hello: cluster_id", hello.cluster_id)


def check_name(what: str, cluster: str) -> str:
    """`cluster`; InvalidInput for an invalid name."""
    if not 0 < len(cluster) <= MAX_CLUSTER_ID or not cluster.isprintable():
        hint = f"is not a name of 1 to {MAX_CLUSTER_ID} printable characters"
        raise InvalidInput(what, cluster[:80], hint)
    return cluster


class Sessions:
    """One session per cluster; a newer one replaces the older.

    `on_session_end` is called with the cluster whenever its session ends or is replaced. `term`
    returns the coordinator's term for acknowledgements; 0 without a coordinator.
    """

    def __init__(
        self,
        epoch: int,
        take_rollup: TakeRollUp,
        note_too_large: NoteTooLargeRollUp,
        replay: Replay,
        on_session_end: Callable[[str], None],
        take_disruptions: TakeDisruptions,
    ) -> None:
        self._epoch = epoch
        self._take_rollup = take_rollup
        self._note_too_large = note_too_large
        self._replay = replay
        self._on_session_end = on_session_end
        self._take_disruptions = take_disruptions
        self.term: Callable[[], int] = lambda: 0
        self._by_cluster: dict[str, Session] = {}
        self._numbers = itertools.count(1)

    def of(self, cluster: str) -> Session | None:
        """The cluster's session, None while its operator is disconnected."""
        return self._by_cluster.get(cluster)

    def clusters(self) -> list[str]:
        """The clusters whose operators are connected."""
        return list(self._by_cluster)

    def send(self, cluster: str, message: shard_pb2.ShardMessage, supersedes_key: str) -> None:
        """Queue a message for a cluster; dropped without a session, whose start replays states."""
        session = self._by_cluster.get(cluster)
        if session is not None:
            session.outbox.put(message, supersedes_key)

    def open(self, hello: shard_pb2.Hello) -> Session:
        """Open a cluster's session: acknowledge, then replay. InvalidInput without a cluster id."""
        cluster = check(hello)
        older = self._by_cluster.get(cluster)
        if older is not None:
            older.end(Ending(True, f"replaced by a newer session of cluster {cluster}"))
            self._on_session_end(cluster)
        session = self._by_cluster[cluster] = Session(cluster, self._numbers)
        session.outbox.put(self._ack(cluster))
        for message in self._replay(cluster):
            session.outbox.put(message, message.node_state_update.supersedes_key)
        metrics.shard_sessions.set(len(self._by_cluster))
        _LOG.info("session opened", extra={"cluster": cluster, "replaced": older is not None})
        return session

    def close(self, session: Session) -> None:
        """Close a session whose stream has ended."""
        session.end()
        if self._by_cluster.get(session.cluster) is session:
            del self._by_cluster[session.cluster]
            self._on_session_end(session.cluster)
        metrics.shard_sessions.set(len(self._by_cluster))
        _LOG.info("session closed", extra={"cluster": session.cluster})

    def close_all(self) -> None:
        """End every stream after what is queued for it."""
        for session in self._by_cluster.values():
            session.end()

    def receive(self, session: Session, message: shard_pb2.OperatorMessage) -> None:
        """Handle a message after the Hello; unknown message types are ignored.

        InvalidInput for a second Hello, or an inquiry about more machines than a cluster can have.
        """
        message_type = message.WhichOneof("message")
        if message_type == "rollup":
            session.outbox.put(self._answer(session.cluster, message.rollup))
        elif message_type == "rollup_too_large":
            session.outbox.put(self._answer_too_large(session.cluster, message.rollup_too_large))
        elif message_type == "bootstrap_response":
            session.take_bootstrap(message.bootstrap_response)
        elif message_type == "reclaim_ack":
            session.take_reclaim_ack(message.reclaim_ack)
        elif message_type == "disruption_report":
            self._take_disruptions(session.cluster, message.disruption_report)
        elif message_type == "inquiry":
            session.asked = _asked(message.inquiry)
            session.drains = _drains(message.inquiry)
        elif message_type == "hello":
            raise InvalidInput("Hello", message.hello.cluster_id, "must be sent once, first")

    def open_sessions(self) -> Collection[Session]:
        """All open sessions."""
        return self._by_cluster.values()

    def answer_inquiries(self, answer: AnswerInquiry) -> None:
        """Answer the operators' inquiries about machines whose state is settled now."""
        for session in self._by_cluster.values():
            for machine_id in sorted(session.asked):
                messages = answer(session.cluster, machine_id)
                if messages is not None:
                    session.asked.discard(machine_id)
                for message in messages or ():
                    session.outbox.put(message, message.node_state_update.supersedes_key)

    def _answer(
        self, cluster: str, rollup: capacity_pb2.ClusterCapacityNeeds
    ) -> shard_pb2.ShardMessage:
        echo = str(rollup.timestamp_unix_nanos)
        return self._ack(echo, self._take_rollup(cluster, rollup))

    def _answer_too_large(
        self, cluster: str, report: shard_pb2.RollUpTooLarge
    ) -> shard_pb2.ShardMessage:
        why = self._note_too_large(cluster, report)
        acknowledgement = shard_pb2.Acknowledgement(rejected=why)
        return self._ack(str(report.timestamp_unix_nanos), acknowledgement)

    def _ack(
        self, echo: str, acknowledgement: shard_pb2.Acknowledgement | None = None
    ) -> shard_pb2.ShardMessage:
        ack = shard_pb2.Acknowledgement(
            echo=echo, coordinator_term=self.term(), shard_epoch=self._epoch
        )
        if acknowledgement is not None:
            ack.MergeFrom(acknowledgement)
        return shard_pb2.ShardMessage(ack=ack)


def _asked(inquiry: shard_pb2.NodeStateInquiry) -> set[str]:
    if len(inquiry.machine_ids) > MAX_ASKED:
        hint = f"exceed the limit of {MAX_ASKED} machines"
        raise InvalidInput("Inquiry: machine_ids", len(inquiry.machine_ids), hint)
    return {machine_id for machine_id in inquiry.machine_ids if is_valid_id(machine_id)}


def _drains(inquiry: shard_pb2.NodeStateInquiry) -> dict[str, int]:
    if len(inquiry.drains) > MAX_ASKED:
        hint = f"exceed the limit of {MAX_ASKED} machines"
        raise InvalidInput("Inquiry: drains", len(inquiry.drains), hint)
    return {
        each.machine_id: min(max(0, each.seconds_left), MAX_GRACE_SECONDS)
        for each in inquiry.drains
        if is_valid_id(each.machine_id)
    }
