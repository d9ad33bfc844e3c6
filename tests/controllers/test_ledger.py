"""Which requests are in force, and which of them have not been answered yet."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.api.install import GANG_MEMBERS
from bigfleet.controllers.operator.ledger import CapacityRequest, Key, Ledger


def _request(name: str, cpu: str = "1", phase: str = "", **metadata: Any) -> CapacityRequest:
    raw = {
        "metadata": {"name": name, "namespace": "team", **metadata},
        "spec": {"resources": {"cpu": cpu}, "priority": 0},
        "status": {"phase": phase},
    }
    return msgspec.json.decode(json.dumps(raw), type=CapacityRequest)


def _key(name: str) -> Key:
    return Key("team", name)


def test_only_requests_that_the_rollup_contained_are_answered() -> None:
    ledger = Ledger()
    ledger.put(_request("a"))
    sent = ledger.aggregate.version
    ledger.put(_request("b"))
    assert ledger.answered(sent) == [_key("a")]
    assert ledger.answered(sent) == []
    assert ledger.answered(ledger.aggregate.version) == [_key("b")]


def test_a_request_that_changed_after_the_rollup_waits_for_the_next() -> None:
    ledger = Ledger()
    ledger.put(_request("a"))
    sent = ledger.aggregate.version
    ledger.put(_request("a", cpu="2"))
    assert ledger.answered(sent) == []


def _member(name: str, gang: str = "g", members: str = "3") -> CapacityRequest:
    request = _request(name, annotations={GANG_MEMBERS: members})
    labels = {"matchLabels": {"gang": gang}}
    spec = json.loads(bytes(request.spec)) | {
        "coLocation": {"topologyKey": "rack", "labelSelector": labels}
    }
    request.spec = msgspec.Raw(json.dumps(spec).encode())
    return request


def test_a_gang_that_is_not_told_yet_is_not_acknowledged_and_holds_up_nobody() -> None:
    ledger = Ledger()
    ledger.replace([])
    ledger.put(_member("first"))
    ledger.put(_request("other"))
    told = ledger.aggregate.told(0.0)
    assert ledger.answered(ledger.aggregate.version, told.gathering) == [_key("other")]
    for name in ("second", "third"):
        ledger.put(_member(name))
    told = ledger.aggregate.told(1.0)
    answered = ledger.answered(ledger.aggregate.version, told.gathering)
    assert answered == [_key("first"), _key("second"), _key("third")]


def test_what_an_operator_finds_when_it_starts_is_told_whole_or_not() -> None:
    """A gang of which two have finished needs the machine of the third, and always has."""
    ledger = Ledger()
    ledger.replace([_member("third")])
    assert len(ledger.aggregate.told(0.0).needs) == 1
    ledger.replace([_member("third"), _member("new", gang="h")])
    assert len(ledger.aggregate.told(0.0).needs) == 1


@pytest.mark.parametrize("said", ["many", "-3", "", "3.0", "9" * 5000])
def test_a_size_without_sense_is_no_size(said: str) -> None:
    ledger = Ledger()
    ledger.replace([])
    ledger.put(_member("only", members=said))
    assert len(ledger.aggregate.told(0.0).needs) == 1


def test_an_acknowledged_request_counts_but_awaits_nothing() -> None:
    ledger = Ledger()
    ledger.put(_request("a", phase="Acknowledged"))
    assert len(ledger.aggregate) == 1
    assert ledger.answered(ledger.aggregate.version) == []


def test_its_own_acknowledgement_is_no_change_of_demand() -> None:
    ledger = Ledger()
    ledger.put(_request("a"))
    ledger.changed.clear()
    ledger.put(_request("a", phase="Acknowledged"))
    assert not ledger.changed.is_set()


def test_a_request_being_deleted_asks_for_nothing() -> None:
    ledger = Ledger()
    ledger.put(_request("a"))
    ledger.put(_request("a", deletionTimestamp="2026-01-01T00:00:00Z"))
    assert len(ledger.aggregate) == 0
    assert ledger.answered(ledger.aggregate.version) == []


def test_one_request_without_sense_does_not_harm_the_others() -> None:
    ledger = Ledger()
    ledger.put(_request("good"))
    ledger.put(_request("bad", cpu="0"))
    assert ledger.aggregate.keys() == [_key("good")]
    ledger.put(_request("bad", cpu="3"))
    assert len(ledger.aggregate) == 2


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["", "0", "1", "2"])), max_size=30),
    st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["0", "1", "2"])),
)
def test_after_a_new_list_only_the_list_counts(
    events: list[tuple[str, str]], listed: dict[str, str]
) -> None:
    ledger, fresh = Ledger(), Ledger()
    for name, cpu in events:
        if cpu:
            ledger.put(_request(name, cpu))
        else:
            ledger.remove(_key(name))
    ledger.replace([_request(name, cpu) for name, cpu in listed.items()])
    fresh.replace([_request(name, cpu) for name, cpu in listed.items()])
    assert ledger.aggregate.needs() == fresh.aggregate.needs()
    everything = ledger.answered(ledger.aggregate.version)
    assert sorted(everything) == sorted(fresh.answered(fresh.aggregate.version))
