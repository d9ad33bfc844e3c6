"""What the servers promised the load driver must be found again in what was recorded."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from loaddriver.load.files import EventResult
from loaddriver.plan.records import ChurnEvent, CreateEvent, DeleteEvent, LoadEvent, ScaleEvent
from loaddriver.record.losses import LoadLosses, load_losses
from loaddriver.record.recorder import Observations
from loaddriver.record.requests import build_request_rows
from loaddriver.record.rows import build_rows
from loaddriver.substrates.credentials import LOAD_DRIVER
from tests.record.record_rig import at, bound, created, line, observations, result

DEPLOYMENTS = "/apis/apps/v1/namespaces/load/deployments"
REQUESTS = "/apis/bigfleet.lucy.sh/v1alpha1/namespaces/load/capacityrequests"
BODY = msgspec.Raw(b"{}")
CREATE = CreateEvent(
    id="a", cluster=0, step=1, offset_seconds=0, path=DEPLOYMENTS, name="web", body=BODY
)
CHURN = ChurnEvent(
    id="b", cluster=0, step=2, offset_seconds=0, namespace="load", workload="web", rank=0
)
ASK = CreateEvent(id="c", cluster=0, step=1, offset_seconds=0, path=REQUESTS, name="cr", body=BODY)
WITHDRAW = DeleteEvent(
    id="d", cluster=0, step=2, offset_seconds=0, path=f"{REQUESTS}/cr", name="cr"
)
NAMESPACE = CreateEvent(
    id="e", cluster=0, step=0, offset_seconds=0, path="/api/v1/namespaces", name="load", body=BODY
)
SCALE = ScaleEvent(
    id="f", cluster=0, step=2, offset_seconds=0, path=f"{DEPLOYMENTS}/web", name="web", replicas=3
)
EVENTS: list[LoadEvent] = [NAMESPACE, CREATE, CHURN, ASK, WITHDRAW, SCALE]
LOG = [
    line("create deployments", "web", 1, user=LOAD_DRIVER),
    created("u1", "web-x", 2),
    bound("u1", "web-x", 3),
    line("delete pods", "web-x", 9, user=LOAD_DRIVER, code=200),
    line(
        "create capacityrequests",
        "cr",
        1,
        user=LOAD_DRIVER,
        body={
            "metadata": {
                "name": "cr",
                "namespace": "load",
                "uid": "r1",
                "labels": {"scaletest.bigfleet/step": "1"},
            }
        },
    ),
    line("delete capacityrequests", "cr", 9, user=LOAD_DRIVER, code=200),
    line("patch deployments/scale", "web", 5, user=LOAD_DRIVER, code=200),
]


RESULTS = [
    result("e", "load"),
    result("a", "web"),
    result("b", "web-x", 200),
    result("c", "cr"),
    result("d", "cr", 200),
    result("f", "web", 200),
]


def losses(observed: Observations, results: list[EventResult] = RESULTS) -> LoadLosses:
    rows, requests = build_rows([observed]), build_request_rows([observed])
    return load_losses(EVENTS, results, [observed], rows, requests)


def test_a_whole_log_keeps_every_promise() -> None:
    """Workloads, their scaling, churned pods, the load's own requests: each has its line, and its
    row where one follows from it.
    """
    assert losses(observations(LOG)) == LoadLosses(0, 0)


@given(st.sets(st.sampled_from([0, 3, 4, 5, 6])))
def test_every_line_of_the_load_that_is_missing_is_noticed(gone: set[int]) -> None:
    """Any of its writes: the driver has the server's word that they happened."""
    kept = [each for number, each in enumerate(LOG) if number not in gone]
    found = losses(observations(kept))
    assert found.without_line == len(gone)
    rowless = {3, 5} & gone | ({4, 5} if 4 in gone else set())
    assert found.without_row == len(rowless)


def test_only_what_was_plainly_acknowledged_is_a_promise() -> None:
    """A refusal, or a success after attempts without an answer, proves nothing."""
    results = [result("a", "web", 403), result("c", "cr", 201, attempts=2), result("b", "", 200)]
    assert losses(observations([]), results) == LoadLosses(0, 0)


def test_where_there_is_no_log_no_line_is_missing() -> None:
    """But rows may be."""
    assert losses(observations(None)) == LoadLosses(0, 3)


def test_the_loads_own_requests_are_rows() -> None:
    """From receipt of the request to the operator's first acknowledgement."""
    acknowledged = [
        line("patch capacityrequests/status", "cr", 4, code=200),
        line("patch capacityrequests/status", "cr", 8, code=200),
    ]
    (row,) = build_request_rows([observations([*LOG, *acknowledged])])
    assert (row.name, row.uid, row.step, row.source) == ("cr", "r1", "1", "audit")
    assert (row.created_micros, row.acknowledged_micros) == (at(1), at(4))
    assert row.deleted_micros == at(9)


def test_a_request_that_a_controller_made_for_a_pod_is_no_row() -> None:
    """Its name and moment are the pod's hops, nothing more."""
    controller = line("create capacityrequests", "web-x-u1", 2, user="bigfleet-pod-controller")
    assert build_request_rows([observations([controller])]) == []
