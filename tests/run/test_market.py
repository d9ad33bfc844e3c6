"""Prices and supply that change in a run: the providers' file, and who acts on notices."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bigfleet.api.auth.identity import Identity, Principal
from bigfleet.kube.client import ApiError
from bigfleet.services.provider import market as provider_market
from loaddriver.errors import ProfileError
from loaddriver.plan.market import Interruption, Kind, MarketPlan, PriceMove
from loaddriver.run.bigfleet_roles import market_of, provider_roles
from loaddriver.run.chart_values import chart_values
from loaddriver.run.fleet_changes import FleetChanges, write_market
from loaddriver.run.spot_notices import drain_kind
from loaddriver.sizing.market import PlayedMarket
from loaddriver.substrates.base import Endpoint, RoleSpec
from tests.loaddriver.load_rig import shipped
from tests.support.waiting import eventually

SPOT = Kind("m6.large", "zone-a", "SPOT")
PLAN = MarketPlan(
    (PriceMove(5.0, SPOT, 0.125),),
    (Interruption(20.0, SPOT, 30.0, 60.0),),
)


class Unused:
    """A substrate that nothing is asked of."""

    async def kill_role(self, name: str) -> None:
        """Never."""
        raise AssertionError(name)

    async def start_role(self, role: RoleSpec) -> Endpoint:
        """Never."""
        raise AssertionError(role)

    def identity(self, name: Principal) -> Identity:
        """Never."""
        raise AssertionError(name)


def test_the_providers_read_what_the_harness_has_written(tmp_path: Path) -> None:
    path = market_of(tmp_path)
    write_market(PlayedMarket(PLAN, 1_000_000_000), path)
    found = provider_market.read(path)
    ((price,),) = found.prices.values()
    assert (price.at, price.price_per_hour) == (1005.0, 0.125)
    ((cut,),) = found.interruptions.values()
    assert (cut.at, cut.gone_at, cut.ends_at) == (1020.0, 1050.0, 1110.0)
    assert found.prices.keys() == found.interruptions.keys()
    assert [*tmp_path.iterdir()] == [path]


async def test_the_market_begins_with_the_soak(tmp_path: Path) -> None:
    """Its times are those by which the run is judged."""
    path, begin = market_of(tmp_path), asyncio.Event()
    moves = MarketPlan(price_moves=PLAN.price_moves)
    settings = shipped("cost-routing-50").settings
    changes = FleetChanges(settings, Unused(), {}, lambda _: None, (), moves, path)
    playing = asyncio.create_task(changes.play(begin, lambda _: None, lambda: 1_000_000_000))
    await asyncio.sleep(0)
    assert not path.exists()
    begin.set()
    await eventually(path.exists)
    playing.cancel()
    assert json.loads(path.read_text())["at"] == 1005.0
    assert changes.played_market.at_micros(5.0) == 1_005_000_000


def test_all_providers_follow_one_market_and_others_have_none() -> None:
    for role in provider_roles(shipped("cost-routing-50").settings, Path("scratch")):
        assert role.inputs["market"] == Path("scratch/market.jsonl")
        assert role.arguments[role.arguments.index("--market") + 1] == "{market}"
    for role in provider_roles(shipped("providers-50").settings, Path("scratch")):
        assert "--market" not in role.arguments


@pytest.mark.parametrize("name", ["cost-routing-50", "spot-churn-50"])
def test_the_chart_cannot_move_prices_or_interrupt_kinds(name: str) -> None:
    with pytest.raises(ProfileError, match="charts/scaletest cannot have fleet"):
        chart_values(shipped(name, "fleet.providers=[]"), (), None)


class Api:
    """An API server with two Nodes of a kind, and what was asked of it; it refuses with `status`
    the eviction of the pod `refused`.
    """

    def __init__(self, refused: str = "", status: int = 429) -> None:
        self.asked: list[str] = []
        self._refused, self._status = refused, status

    async def get(self, path: str, query: Mapping[str, str]) -> bytes:
        """The Nodes, or the pods of one."""
        if path.endswith("nodes"):
            self.asked.append(query["labelSelector"])
            nodes = [{"metadata": {"name": "n1"}}, _node("n2", unschedulable=True)]
            return json.dumps({"items": nodes}).encode()
        name = query["fieldSelector"].removeprefix("spec.nodeName=")
        pods = [
            _pod(f"{name}-web"),
            _pod(f"{name}-agent", owner="DaemonSet"),
            _pod(f"{name}-done", phase="Succeeded"),
            _pod(f"{name}-leaving", deleted="2026-01-01T00:00:00Z"),
        ]
        return json.dumps({"items": pods}).encode()

    async def patch(self, path: str, body: Any) -> bytes:
        """Note it."""
        self.asked.append(f"{path.rpartition('/')[2]} {json.dumps(body)}")
        return b""

    async def create(self, path: str, body: Any) -> bytes:
        """Note the eviction, or refuse it."""
        name = body["metadata"]["name"]
        assert path == f"/api/v1/namespaces/load/pods/{name}/eviction"
        assert body["deleteOptions"]["preconditions"]["uid"] == f"uid-{name}"
        self.asked.append(f"evict {name}")
        if name == self._refused:
            raise ApiError("POST", self._status, "", "")
        return b""


def _node(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec}


def _pod(name: str, owner: str = "ReplicaSet", phase: str = "Running", deleted: str = "") -> Any:
    metadata: dict[str, Any] = {"name": name, "namespace": "load", "uid": f"uid-{name}"}
    metadata["ownerReferences"] = [{"kind": owner, "name": "x", "uid": "x", "controller": True}]
    if deleted:
        metadata["deletionTimestamp"] = deleted
    return {"metadata": metadata, "status": {"phase": phase}}


async def test_nodes_of_a_kind_are_cordoned_and_their_pods_evicted() -> None:
    """Not those of DaemonSets, nor what has ended or is leaving."""
    api = Api()
    await drain_kind(api, SPOT)  # type: ignore[arg-type]
    assert api.asked == [
        "node.kubernetes.io/instance-type=m6.large,topology.kubernetes.io/zone=zone-a,"
        "bigfleet.lucy.sh/capacity-type=spot",
        'n1 {"spec": {"unschedulable": true}}',
        "evict n1-web",
        "evict n2-web",
    ]


@pytest.mark.parametrize("status", [429, 404, 409])
async def test_a_budgets_refusal_or_a_pod_that_is_gone_stops_nothing(status: int) -> None:
    api = Api("n1-web", status)
    await drain_kind(api, SPOT)  # type: ignore[arg-type]
    assert api.asked[-1] == "evict n2-web"


async def test_a_refusal_of_the_right_to_evict_is_an_error() -> None:
    with pytest.raises(ApiError):
        await drain_kind(Api("n1-web", 403), SPOT)  # type: ignore[arg-type]
