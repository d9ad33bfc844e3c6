"""Scrapes BigFleet's metrics and unmet needs at the end of a run, for the summary.

A histogram's quantile is the upper bound of its bucket: never too small, at most twice too large.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import aiohttp
import grpc
import grpc.aio
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from bigfleet.api import transport
from bigfleet.api.auth.identity import Identity
from bigfleet.api.v1alpha1 import shardread_pb2 as wire
from bigfleet.api.v1alpha1.shardread_pb2_grpc import ShardReadStub
from loaddriver.judge.facts import Shortfall
from loaddriver.plan.manifests import INSTANCE_TYPE_KEY
from loaddriver.run.bigfleet_roles import LISTEN
from loaddriver.substrates.base import Endpoint

# A healthy shard answers at once; a dead one must not delay the report.
_RPC_TIMEOUT_SECONDS = 5.0


async def unmet_needs(shards: Sequence[Endpoint]) -> tuple[Shortfall, ...] | None:
    """The needs that supply does not cover, as of each shard's last cycle, highest priority first.

    None if there is no shard or one does not answer.
    """
    answers = await asyncio.gather(*(_needs(shard) for shard in shards))
    if not answers or None in answers:
        return None
    short = [view for views in answers for view in views or () if not view.satisfied]
    return tuple(_shortfall(view) for view in sorted(short, key=lambda v: -v.need.priority))


async def _needs(shard: Endpoint) -> list[wire.NeedView] | None:
    if LISTEN not in shard.addresses:
        return None
    identity = Identity(shard.readonly_identity) if shard.readonly_identity else None
    try:
        async with transport.channel(shard.addresses[LISTEN], identity, "shard") as channel:
            stub: Any = ShardReadStub(channel)
            answer = stub.InspectNeeds(wire.InspectNeedsRequest(), timeout=_RPC_TIMEOUT_SECONDS)
            return [each.need async for each in answer if each.HasField("need")]
    except grpc.aio.AioRpcError:
        return None


def unmet_counts(shortfalls: Sequence[Shortfall] | None) -> dict[str, Any]:
    """The number of unmet needs, in total and by reason; None if unknown."""
    if shortfalls is None:
        return {"needsUnmetAtEnd": None}
    reasons = Counter(each.kind for each in shortfalls)
    return {"needsUnmetAtEnd": len(shortfalls), "needsUnmetByReason": dict(sorted(reasons.items()))}


def _shortfall(view: wire.NeedView) -> Shortfall:
    types = {
        value
        for each in view.need.requirements
        if each.key == INSTANCE_TYPE_KEY
        for value in each.values
    }
    return Shortfall(
        cluster=view.cluster_id,
        instance_types=tuple(sorted(types)),
        missing=dict(view.residual_deficit.resources),
        reason=view.unmet_reason_text,
        kind=_camel(wire.NeedView.UnmetReason.Name(view.unmet_reason)),
    )


def _camel(name: str) -> str:
    first, *rest = name.casefold().split("_")
    return first + "".join(word.capitalize() for word in rest)


Samples = Mapping[str, float]
Buckets = Mapping[float, float]

# Summary key: the histogram, and the label value that selects one of its series.
_P99_SECONDS = {
    "cycleP99Seconds": ("bigfleet_shard_cycle_duration_seconds", ""),
    "configureP99Seconds": ("bigfleet_shard_configure_phase_seconds", ""),
    "bootstrapP99Seconds": ("bigfleet_shard_request_bootstrap_seconds", ""),
    "rollupBuildP99Seconds": ("bigfleet_operator_rollup_duration_seconds", "build"),
    "rollupSendP99Seconds": ("bigfleet_operator_rollup_duration_seconds", "send"),
}
_UNMET = "bigfleet_shard_shortfalls"
_ELECTIONS = "bigfleet_coordinator_elections_total"
_SUMS = {
    "shortfallsAtEnd": (_UNMET,),
    "rollupsRejected": ("bigfleet_operator_rollups_rejected_total",),
    "sessionReconnects": ("bigfleet_operator_session_reconnects_total",),
    "ordersDropped": ("bigfleet_shard_actions_dropped_total",),
    "unforeseenErrors": ("bigfleet_internal_errors_total",),
    "transitionsAdopted": ("bigfleet_shard_unexpected_transitions_total",),
    # A deposed leader that still acted, as each side counts it.
    "incidents": (
        "bigfleet_shard_incidents_total",
        "bigfleet_provider_orders_fenced_total",
        "bigfleet_coordinator_incidents_total",
    ),
}

# Polled during the run; parsing all metrics of a shard takes tens of milliseconds.
_SHORTFALLS = re.compile(rf"^{_UNMET}(?:\{{[^}}]*\}})? (\S+)$", re.MULTILINE)


async def components(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """Scrape every role once and aggregate.

    Empty unless all roles answer, as partial sums would mislead; gates on these numbers then fail.
    """
    texts = [await _metrics(endpoint) for endpoint in endpoints]
    if None in texts:
        return {}
    families = [f for text in texts for f in text_string_to_metric_families(text or "")]
    samples = [s for family in families for s in family.samples]
    result: dict[str, Any] = {}
    for key, (name, label) in _P99_SECONDS.items():
        buckets: defaultdict[float, float] = defaultdict(float)
        for sample in samples:
            if sample.name == f"{name}_bucket" and (not label or label in sample.labels.values()):
                buckets[float(sample.labels["le"])] += sample.value
        result[key] = quantile(buckets, 0.99)
    known = {family.name for family in families}
    for key, names in _SUMS.items():
        reported = known.intersection(name.removesuffix("_total") for name in names)
        values = (sample.value for sample in samples if sample.name in names)
        result[key] = sum(values) if reported else None  # unreported is not zero
    result["electionsWithoutFault"] = _elections_without_fault(samples, known)
    result["actions"] = _by_action_type(samples, "bigfleet_shard_actions_total")
    return result


def _elections_without_fault(samples: Iterable[Sample], known: Collection[str]) -> float | None:
    """How often a healthy coordinator lost its leadership; None without coordinators."""
    if _ELECTIONS.removesuffix("_total") not in known:
        return None
    found = (s.value for s in samples if s.name == _ELECTIONS and s.labels["predecessor"] == "well")
    return sum(found)


def _by_action_type(samples: Iterable[Sample], name: str) -> dict[str, float]:
    """Sums over all shards, by action type.

    A shard reports 0 for every type it knows, so a missing type does not exist or is misspelt.
    """
    sums: defaultdict[str, float] = defaultdict(float)
    for sample in samples:
        if sample.name == name:
            sums[sample.labels["type"]] += sample.value
    return dict(sums)


async def shortfalls(shards: Sequence[Endpoint]) -> int | None:
    """The current number of unmet needs; None unless all shards answer."""
    texts = await asyncio.gather(*(_metrics(shard) for shard in shards))
    found = [_SHORTFALLS.findall(text or "") for text in texts]
    return int(sum(float(n) for of_shard in found for n in of_shard)) if all(found) else None


def quantile(buckets: Buckets, level: float) -> float | None:
    """The upper bound of the cumulative bucket that holds the quantile; None without samples.

    Also None if the quantile lies beyond the last finite bound.
    """
    total = buckets.get(math.inf, 0.0)
    if not total:
        return None
    bound = min(le for le, count in buckets.items() if count >= level * total)
    return bound if math.isfinite(bound) else None


async def _metrics(role: Endpoint) -> str | None:
    timeout = aiohttp.ClientTimeout(total=5)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"http://{role.observe}/metrics") as response,
        ):
            return await response.text() if response.status == 200 else None
    except (aiohttp.ClientError, TimeoutError, OSError):
        return None
