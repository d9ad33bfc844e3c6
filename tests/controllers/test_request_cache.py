"""Which requests count, and which of them are not acknowledged yet."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.api.install import GANG_MEMBERS
from bigfleet.controllers.operator.request_cache import CapacityRequest, RequestCache, RequestKey


def _request(name: str, cpu: str = "1", phase: str = "", **metadata: Any) -> CapacityRequest:
    raw = {
        "metadata": {"name": name, "namespace": "team", **metadata},
        "spec": {"resources": {"cpu": cpu}, "priority": 0},
        "status": {"phase": phase},
    }
    return msgspec.json.decode(json.dumps(raw), type=CapacityRequest)


def _key(name: str) -> RequestKey:
    return RequestKey("team", name)


def test_only_requests_that_the_rollup_contained_are_answered() -> None:
    request_cache = RequestCache()
    request_cache.put(_request("a"))
    sent = request_cache.aggregate.version
    request_cache.put(_request("b"))
    assert request_cache.take_unacknowledged(sent) == [_key("a")]
    assert request_cache.take_unacknowledged(sent) == []
    assert request_cache.take_unacknowledged(request_cache.aggregate.version) == [_key("b")]


def test_a_request_that_changed_after_the_rollup_waits_for_the_next() -> None:
    request_cache = RequestCache()
    request_cache.put(_request("a"))
    sent = request_cache.aggregate.version
    request_cache.put(_request("a", cpu="2"))
    assert request_cache.take_unacknowledged(sent) == []


def test_each_request_is_observed_once_and_stays_counted() -> None:
    """Also one that is changed, invalid, gone, or listed again; one that comes again is another."""
    request_cache = RequestCache()
    request_cache.replace([_request("a"), _request("b", cpu="no quantity")])
    request_cache.put(_request("a", cpu="2"))
    request_cache.put(_request("c"))
    request_cache.replace([_request("a"), _request("b")])
    assert request_cache.observed == 3
    request_cache.put(_request("c"))
    assert request_cache.observed == 4


def _member(name: str, gang: str = "g", members: str = "3") -> CapacityRequest:
    request = _request(name, annotations={GANG_MEMBERS: members})
    labels = {"matchLabels": {"gang": gang}}
    spec = json.loads(bytes(request.spec)) | {
        "coLocation": {"topologyKey": "rack", "labelSelector": labels}
    }
    request.spec = msgspec.Raw(json.dumps(spec).encode())
    return request


def test_an_incomplete_gang_is_not_acknowledged_and_does_not_delay_others() -> None:
    request_cache = RequestCache()
    request_cache.replace([])
    request_cache.put(_member("first"))
    request_cache.put(_request("other"))
    told = request_cache.aggregate.content(0.0)
    assert request_cache.take_unacknowledged(request_cache.aggregate.version, told.incomplete) == [
        _key("other")
    ]
    for name in ("second", "third"):
        request_cache.put(_member(name))
    told = request_cache.aggregate.content(1.0)
    take_unacknowledged = request_cache.take_unacknowledged(
        request_cache.aggregate.version, told.incomplete
    )
    assert take_unacknowledged == [_key("first"), _key("second"), _key("third")]


def test_gangs_that_exist_at_the_start_are_reported_complete_or_not() -> None:
    """A gang of which two have finished still needs the machine of the third."""
    request_cache = RequestCache()
    request_cache.replace([_member("third")])
    assert len(request_cache.aggregate.content(0.0).needs) == 1
    request_cache.replace([_member("third"), _member("new", gang="h")])
    assert len(request_cache.aggregate.content(0.0).needs) == 1


@pytest.mark.parametrize("said", ["many", "-3", "", "3.0", "9" * 5000])
def test_a_size_without_sense_is_no_size(said: str) -> None:
    request_cache = RequestCache()
    request_cache.replace([])
    request_cache.put(_member("only", members=said))
    assert len(request_cache.aggregate.content(0.0).needs) == 1


def test_an_acknowledged_request_counts_but_awaits_nothing() -> None:
    request_cache = RequestCache()
    request_cache.put(_request("a", phase="Acknowledged"))
    assert len(request_cache.aggregate) == 1
    assert request_cache.take_unacknowledged(request_cache.aggregate.version) == []


def test_its_own_acknowledgement_is_no_change_of_demand() -> None:
    request_cache = RequestCache()
    request_cache.put(_request("a"))
    request_cache.changed.clear()
    request_cache.put(_request("a", phase="Acknowledged"))
    assert not request_cache.changed.is_set()


def test_a_terminating_request_adds_no_demand() -> None:
    request_cache = RequestCache()
    request_cache.put(_request("a"))
    request_cache.put(_request("a", deletionTimestamp="2026-01-01T00:00:00Z"))
    assert len(request_cache.aggregate) == 0
    assert request_cache.take_unacknowledged(request_cache.aggregate.version) == []


def test_one_request_without_sense_does_not_harm_the_others() -> None:
    request_cache = RequestCache()
    request_cache.put(_request("good"))
    request_cache.put(_request("bad", cpu="0"))
    assert request_cache.aggregate.keys() == [_key("good")]
    request_cache.put(_request("bad", cpu="3"))
    assert len(request_cache.aggregate) == 2


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["", "0", "1", "2"])), max_size=30),
    st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["0", "1", "2"])),
)
def test_after_a_new_list_only_the_list_counts(
    events: list[tuple[str, str]], listed: dict[str, str]
) -> None:
    request_cache, fresh = RequestCache(), RequestCache()
    for name, cpu in events:
        if cpu:
            request_cache.put(_request(name, cpu))
        else:
            request_cache.remove(_key(name))
    request_cache.replace([_request(name, cpu) for name, cpu in listed.items()])
    fresh.replace([_request(name, cpu) for name, cpu in listed.items()])
    assert request_cache.aggregate.needs() == fresh.aggregate.needs()
    everything = request_cache.take_unacknowledged(request_cache.aggregate.version)
    assert sorted(everything) == sorted(fresh.take_unacknowledged(fresh.aggregate.version))
