"""What the API server admits, the operator reports, and a shard accepts and decides about."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bigfleet.api.install import GROUP_VERSION
from bigfleet.api.v1alpha1.capacity_pb2 import ClusterCapacityNeeds
from bigfleet.controllers.operator.aggregate import Aggregate
from bigfleet.controllers.operator.request_demand import RequestSpec, demand_of
from bigfleet.kube.client import ApiError, KubeClient
from bigfleet.model.errors import InvalidInput
from tests.support.clusters import admin
from tests.support.clusters import request as request_of
from tests.support.deciding_rig import play
from tests.support.shard_rig import machine

pytestmark = pytest.mark.cluster

_DRY = f"{GROUP_VERSION}/namespaces/default/capacityrequests?dryRun=All"
_REQUESTS, _AT_ONCE = 400, 20
_INVALID = 422
_LABEL = "v" * 63
_QUANTITIES = (
    "0", "1", 3, "500m", "1.5Gi", "1n", "+2", ".5", "1e3", "1E3", "8Pi", "7Ei",
    "9223372036854775807",
    "1e18", "1e.5", "1e99", "9" * 64, "-0", "-1", "x", "",
)  # fmt: skip
_KEYS = ("zone", "topology.bigfleet/rack", "kubernetes.io/hostname", "k" * 317, "rack k", "\u00e4")
_INTEGERS = ("0", "-5", "+7", "9" * 18, "9" * 19, "1.5", "one")
_NUMBERS = (1, 2, 2**31 - 1, 0, 2**31)


def _several(draw: random.Random, one: Callable[[], Any], most: int = 2) -> list[Any]:
    return [one() for _ in range(draw.randint(1, most))]


def _expression(draw: random.Random, *more: str) -> dict[str, Any]:
    operator = draw.choice(("In", "NotIn", "Exists", "DoesNotExist", *more))
    found: dict[str, Any] = {"key": draw.choice(_KEYS), "operator": operator}
    if operator in ("In", "NotIn"):
        found["values"] = _several(draw, lambda: draw.choice(("a", "b", "", _LABEL)))
    elif operator in ("Gt", "Lt"):
        found["values"] = [draw.choice(_INTEGERS)]
    return found


def _selector(draw: random.Random) -> dict[str, Any]:
    return {
        "matchLabels": {draw.choice(_KEYS): draw.choice(("", "a", _LABEL))},
        "matchExpressions": _several(draw, lambda: _expression(draw)),
    }


def _toleration(draw: random.Random) -> dict[str, Any]:
    return draw.choice(
        (
            {"operator": "Exists"},
            {"key": "a", "value": "b", "effect": draw.choice(("", "NoSchedule", "NoExecute"))},
            {"key": draw.choice(_KEYS), "operator": "Exists"},
        )
    )


def _spread(draw: random.Random) -> dict[str, Any]:
    hard = draw.random() < 0.7
    found = {
        "topologyKey": draw.choice(_KEYS),
        "maxSkew": draw.choice(_NUMBERS),
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
        "labelSelector": _selector(draw),
        "nodeAffinityPolicy": draw.choice(("Honor", "Ignore")),
    }
    return found | ({"minDomains": draw.choice(_NUMBERS)} if hard else {})


def _port(draw: random.Random) -> dict[str, Any]:
    return {"port": draw.choice((1, 65535)), "protocol": draw.choice(("TCP", "UDP"))}


def _amounts(draw: random.Random) -> dict[str, Any]:
    names = ("cpu", "memory", "pods", "nvidia.com/gpu", "hugepages-2Mi", "odd", "")
    sound = {draw.choice(names[:4]): draw.choice(("1", "2Gi", "100m"))}
    odd = {name: draw.choice(_QUANTITIES) for name in draw.sample(names, 2)}
    return sound if draw.random() < 0.7 else odd | sound


def _spec(draw: random.Random) -> dict[str, Any]:
    """Each field now and then; some of it is refused by the API server."""
    parts: dict[str, Callable[[], Any]] = {
        "preemptionPolicy": lambda: draw.choice(("Never", "PreemptLowerPriority")),
        "requirements": lambda: _several(draw, lambda: _expression(draw, "Gt", "Lt")),
        "nodeSelectorTerms": lambda: _several(
            draw, lambda: {"matchExpressions": _several(draw, lambda: _expression(draw, "Gt"))}
        ),
        "tolerations": lambda: _several(draw, lambda: _toleration(draw)),
        "coLocation": lambda: {
            "topologyKey": draw.choice(_KEYS),
            "labelSelector": _selector(draw),
        },
        "antiAffinity": lambda: {"topologyKeys": draw.sample(_KEYS, 2)},
        "hostPorts": lambda: _several(draw, lambda: _port(draw)),
        "topologySpread": lambda: _several(draw, lambda: _spread(draw)),
        "additional": lambda: draw.choice((True, False)),
        "interruptionPenalty": lambda: draw.choice(("0.25", 12, *_QUANTITIES)),
    }
    chosen = draw.sample(sorted(parts), draw.randint(0, 4))
    priority = draw.choice((0, 5, 2**31 - 1, -(2**31)))
    return {"resources": _amounts(draw), "priority": priority} | {n: parts[n]() for n in chosen}


async def _admitted(client: KubeClient, number: int, spec: dict[str, Any]) -> bytes | None:
    """The spec as the API server would store it; None when it refuses it."""
    body = request_of(f"drawn-{number}", **spec)
    try:
        return await client.create(_DRY, body)
    except ApiError as error:
        if error.status != _INVALID:
            raise
        return None


async def _all_admitted(kubeconfig: dict[str, Path], seed: int) -> Iterator[bytes]:
    """The drawn requests that are admitted, as they would be stored."""
    draw = random.Random(seed)
    specs = [*enumerate(_spec(draw) for _ in range(_REQUESTS))]
    made: list[bytes | None] = []
    async with await admin(kubeconfig) as client:
        for first in range(0, _REQUESTS, _AT_ONCE):
            some = specs[first : first + _AT_ONCE]
            made += await asyncio.gather(*(_admitted(client, *each) for each in some))
    return (each for each in made if each is not None)


class _Request(msgspec.Struct):
    spec: RequestSpec


@pytest.mark.parametrize("seed", range(2))
async def test_what_is_admitted_is_accepted_and_decided(
    kubeconfig: dict[str, Path], seed: int
) -> None:
    """Of four hundred drawn requests, those that a real API server admits: the operator says of the
    few that make no sense what is wrong, and all the rest is in force and decided about.
    """
    aggregate: Aggregate[int] = Aggregate()
    left_out: list[InvalidInput] = []
    for number, stored in enumerate(await _all_admitted(kubeconfig, seed)):
        try:
            spec = msgspec.json.decode(stored, type=_Request).spec
            aggregate.put(number, demand_of("default", spec))
        except InvalidInput as error:
            left_out.append(error)
    assert len(aggregate) > _REQUESTS / 10, "hardly any were admitted"
    assert len(left_out) < len(aggregate), left_out
    assert all(error.what and error.hint for error in left_out)
    content = aggregate.content(1e9)
    rollup = ClusterCapacityNeeds(cluster_id="east", needs=content.needs)
    fleet = [machine(f"m-{number}") for number in range(6)]
    await play(fleet, [rollup])
