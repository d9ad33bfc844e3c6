"""The sessions with all operators, and the handlers behind them."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection, Iterator, Sequence

from bigfleet.api.v1alpha1 import capacity_pb2, shard_pb2
from bigfleet.model.errors import InvalidInput
from bigfleet.observe import metrics
from bigfleet.services.shard.fleet.machine_ids import is_valid_id
from bigfleet.services.shard.sessions.session import Ending, Session

_log = logging.getLogger(__name__)
# As long as a Kubernetes name.
MAX_CLUSTER_ID = 253

# As many machines as one cluster can hold.
MAX_ASKED = 100_000
# More than any band of graces has.
MAX_GRACE_SECONDS = 3600

# Takes a roll-up of the named cluster; returns "" or why it is not in force.
TakeRollUp = Callable[[str, capacity_pb2.ClusterCapacityNeeds], shard_pb2.Acknowledgement]
# Takes note of a roll-up that cannot be sent; returns what that means for the cluster.
NoteTooLargeRollUp = Callable[[str, shard_pb2.RollUpTooLarge], str]
# Takes what the operator of the named cluster says that giving machines back would disturb.
TakeDisruptions = Callable[[str, shard_pb2.DisruptionReport], None]
# What a cluster's operator must hear first: the state of every machine bound to it.
Replay = Callable[[str], Iterator[shard_pb2.ShardMessage]]

# What the operator of a cluster is told of a machine; None when that cannot be said yet.
AnswerInquiry = Callable[[str, str], Sequence[shard_pb2.ShardMessage] | None]


def check(hello: shard_pb2.Hello) -> str:
    """The cluster that greets; InvalidInput when that is no name."""
    return check_name("Hello: cluster_id", hello.cluster_id)


def check_name(what: str, cluster: str) -> str:
    """`cluster`; InvalidInput when that is no name."""
    if not 0 < len(cluster) <= MAX_CLUSTER_ID or not cluster.isprintable():
        hint = f"is not a name of 1 to {MAX_CLUSTER_ID} printable characters"
        raise InvalidInput(what, cluster[:80], hint)
    return cluster


class Sessions:
    """One session per cluster; a newer one replaces the older.

    `on_session_end` is told of the cluster whenever a session of it ends or is replaced. `term`
    gives the coordinator's, for whoever reads acknowledgements; 0 without one.
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
        """The cluster's session, None while its operator is away."""
        return self._by_cluster.get(cluster)

    def clusters(self) -> list[str]:
        """The clusters whose operators are connected."""
        return list(self._by_cluster)

    def send(self, cluster: str, message: shard_pb2.ShardMessage, supersedes_key: str) -> None:
        """Queue news for a cluster; lost when its operator is away, which replay makes good."""
        session = self._by_cluster.get(cluster)
        if session is not None:
            session.outbox.put(message, supersedes_key)

    def open(self, hello: shard_pb2.Hello) -> Session:
        """Begin a cluster's session: acknowledge, then replay. InvalidInput without a cluster."""
        cluster = check(hello)
        older = self._by_cluster.get(cluster)
        if older is not None:
            older.end(Ending(True, f"a newer session of cluster {cluster} replaced this one"))
            self._on_session_end(cluster)
        session = self._by_cluster[cluster] = Session(cluster, self._numbers)
        session.outbox.put(self._ack(cluster))
        for message in self._replay(cluster):
            session.outbox.put(message, message.node_state_update.supersedes_key)
        metrics.shard_sessions.set(len(self._by_cluster))
        _log.info("session opened", extra={"cluster": cluster, "replaced": older is not None})
        return session

    def close(self, session: Session) -> None:
        """The stream is over, for whatever reason."""
        session.end()
        if self._by_cluster.get(session.cluster) is session:
            del self._by_cluster[session.cluster]
            self._on_session_end(session.cluster)
        metrics.shard_sessions.set(len(self._by_cluster))
        _log.info("session closed", extra={"cluster": session.cluster})

    def close_all(self) -> None:
        """End every stream after what is queued for it."""
        for session in self._by_cluster.values():
            session.end()

    def receive(self, session: Session, message: shard_pb2.OperatorMessage) -> None:
        """Handle what an operator says after its Hello; what this version cannot know is ignored.

        InvalidInput when the operator greets twice, or asks about more machines than there can be.
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
            session.drains = _emptying(message.inquiry)
        elif message_type == "hello":
            raise InvalidInput("Hello", message.hello.cluster_id, "comes once, as first message")

    def open_sessions(self) -> Collection[Session]:
        """Those of all clusters whose operators are connected."""
        return self._by_cluster.values()

    def answer_inquiries(self, answer: AnswerInquiry) -> None:
        """Tell each operator what can be said now of the machines that it asks about."""
        for session in self._by_cluster.values():
            for machine_id in sorted(session.asked):
                news = answer(session.cluster, machine_id)
                if news is not None:
                    session.asked.discard(machine_id)
                for message in news or ():
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
        hint = f"are more than the {MAX_ASKED} that a cluster can hold"
        raise InvalidInput("Inquiry: machine_ids", len(inquiry.machine_ids), hint)
    return {machine_id for machine_id in inquiry.machine_ids if is_valid_id(machine_id)}


def _emptying(inquiry: shard_pb2.NodeStateInquiry) -> dict[str, int]:
    if len(inquiry.drains) > MAX_ASKED:
        hint = f"are more than the {MAX_ASKED} that a cluster can hold"
        raise InvalidInput("Inquiry: emptying", len(inquiry.drains), hint)
    return {
        each.machine_id: min(max(0, each.seconds_left), MAX_GRACE_SECONDS)
        for each in inquiry.drains
        if is_valid_id(each.machine_id)
    }
