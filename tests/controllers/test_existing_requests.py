"""The pod controller's cache of requests."""

from __future__ import annotations

from typing import Any

import msgspec

from bigfleet.controllers.pod_controller.existing_requests import (
    ExistingRequests,
    InternedSpec,
    RequestKey,
    ShortReason,
    digest_of,
)
from bigfleet.controllers.pod_controller.pods import ExistingRequest
from tests.controllers.pod_rig import (
    ZONE,
    affinity_terms,
    anti_affinity_terms,
    peers,
    shape,
    spread,
)


def _spec(cpu: str = "1", **more: Any) -> InternedSpec:
    body = {"resources": {"cpu": cpu}, "priority": 0, **more}
    return InternedSpec(body, digest_of(body))


def _request(
    name: str, spec: InternedSpec, reason: str = "", namespace: str = "team", status: str = "True"
) -> ExistingRequest:
    said = {"type": "CapacityShort", "status": status, "reason": reason, "message": "m"}
    raw = {
        "metadata": {"name": name, "namespace": namespace},
        "spec": dict(spec.body),
        "status": {"conditions": [said]} if reason else {},
    }
    return msgspec.convert(raw, ExistingRequest)


def _known(*requests: ExistingRequest) -> ExistingRequests:
    known = ExistingRequests()
    known.replace(requests)
    return known


def _short(known: ExistingRequests, name: str, spec: InternedSpec, namespace: str = "team") -> bool:
    return known.short_reason(RequestKey(namespace, name), spec) is not None


def test_a_short_need_is_known_by_any_of_its_requests_whatever_their_amounts() -> None:
    known = _known(_request("a", _spec(), "PriorityStarved"))
    assert _short(known, "b", _spec("2"))
    assert _short(known, "b", _spec("2"), "other")
    assert not _short(known, "b", _spec(priority=1))


def test_what_nothing_can_hold_speaks_for_its_equals_alone() -> None:
    known = _known(_request("a", _spec("9000"), "NoMatchingSupply"))
    assert _short(known, "b", _spec("9000"))
    assert not _short(known, "b", _spec("1"))


def test_terms_between_pods_are_those_of_one_namespace() -> None:
    gang = _spec(coLocation={"topologyKey": "rack"})
    known = _known(_request("a", gang, "TopologyUnsatisfiable"))
    assert _short(known, "b", gang)
    assert not _short(known, "b", gang, "other")


def test_pods_with_domains_do_not_wait_for_a_need_that_is_short_where_it_is_counted() -> None:
    """The shard does not know where they run. Gangs wait, and so does who has no domains."""
    apart = shape(**anti_affinity_terms(peers(ZONE)))
    elsewhere, starved = ShortReason("TopologyUnsatisfiable", ""), ShortReason("Starved", "")
    assert not elsewhere.explains(apart)
    assert not elsewhere.explains(shape(**spread(ZONE)))
    assert elsewhere.explains(shape(**affinity_terms(peers(ZONE))))
    assert elsewhere.explains(shape())
    assert starved.explains(apart)


def test_a_need_is_not_short_any_more_without_a_condition() -> None:
    known = _known(_request("a", _spec(), "PriorityStarved"))
    known.put(_request("a", _spec(), "Satisfied", status="False"))
    assert not _short(known, "b", _spec())
    known.put(_request("a", _spec(), "PriorityStarved"))
    known.remove(RequestKey("team", "a"))
    assert not _short(known, "b", _spec())


def test_how_many_additional_machines_were_asked_for_is_read_from_their_requests() -> None:
    first = RequestKey("team", "p-0123")
    keys = list(first.additional())
    known = _known(*(_request(key.name, _spec(additional=True)) for key in keys[:2]))
    assert known.asked(first) == 2
    assert known.asked(RequestKey("team", "p")) == 0


def test_additional_names_are_legal_and_of_one_pod_however_long() -> None:
    [*names] = [key.name for key in RequestKey("team", "x" * 253).additional()]
    assert len(set(names)) == 3
    assert all(len(name) <= 253 for name in names)
