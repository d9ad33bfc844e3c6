"""Scrapes BigFleet's metrics and unmet needs at the end of a run, for the summary."""

from __future__ import annotations

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import aiohttp
import grpc
import grpc.aio
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from bigfleet.api import transport
from bigfleet.api.auth.identity import Identity
from bigfleet.api.v1alpha1 import shardread_pb2 as wire
from bigfleet.api.v1alpha1.shardread_pb2_grpc import ShardReadStub
from loaddriver.judge.facts import Shortfall
from loaddriver.plan.manifests import INSTANCE_TYPE_KEY
from loaddriver.record.histograms import Histogram, Series, histograms, numbers, summed
from loaddriver.run.bigfleet_roles import LISTEN, coordinators_of
from loaddriver.run.shard_parts import unevenness
from loaddriver.sizing.inventory import InventoryMachine
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
_HEALTHY_PREDECESSOR = "healthy"
_SUMS = {
    "shortfallsAtEnd": (_UNMET,),
    "rollupsRejected": ("bigfleet_operator_rollups_rejected_total",),
    "sessionReconnects": ("bigfleet_operator_session_reconnects_total",),
    "ordersDropped": ("bigfleet_shard_actions_dropped_total",),
    "unforeseenErrors": ("bigfleet_internal_errors_total",),
    "transitionsAdopted": ("bigfleet_shard_unexpected_transitions_total",),
    "pricesMoved": ("bigfleet_provider_price_changes_total",),
    "machinesInterrupted": ("bigfleet_provider_interruptions_total",),
    # A deposed leader that still acted, as each side counts it.
    "incidents": (
        "bigfleet_shard_incidents_total",
        "bigfleet_provider_orders_fenced_total",
        "bigfleet_coordinator_incidents_total",
    ),
}

# Readings are as far apart as this at most.
_FIVE_MINUTES, _READING_SLACK = 300.0, 15.0
# Polled during the run; writing and parsing all metrics of a shard takes tens of milliseconds.
_SHORTFALLS = re.compile(rf"^{_UNMET}(?:\{{[^}}]*\}})? (\S+)$", re.MULTILINE)


Durations = Mapping[str, Mapping[Series, Histogram]]
"""The histograms of each role, by its address."""


async def durations(endpoints: Iterable[Endpoint]) -> Durations:
    """Scrape the histograms of every role, to subtract them from those at the end of the load."""
    texts = {str(endpoint.observe): await _metrics(endpoint) for endpoint in endpoints}
    return {address: histograms(_families(text or "")) for address, text in texts.items()}


async def components(
    endpoints: Collection[Endpoint], before: Durations, machines: Sequence[InventoryMachine] = ()
) -> dict[str, Any]:
    """Scrape every role once and aggregate; of durations, those since `before`. With `machines` and
    coordinators, also how evenly those are divided.

    Empty unless all roles answer, as partial sums would mislead; gates on these numbers then fail.
    """
    texts = {str(endpoint.observe): await _metrics(endpoint) for endpoint in endpoints}
    if None in texts.values():
        return {}
    families = {address: list(_families(text or "")) for address, text in texts.items()}
    observed = summed(
        _since(before.get(address, {}), histograms(found)) for address, found in families.items()
    )
    samples = [s for found in families.values() for family in found for s in family.samples]
    result: dict[str, Any] = {
        key: observed.get(series, Histogram()).quantile(0.99)
        for key, series in _P99_SECONDS.items()
    }
    known = {family.name for found in families.values() for family in found}
    for key, names in _SUMS.items():
        reported = known.intersection(name.removesuffix("_total") for name in names)
        values = (sample.value for sample in samples if sample.name in names)
        result[key] = sum(values) if reported else None  # unreported is not zero
    result["electionsWithoutFault"] = _elections_without_fault(samples, known)
    result["actions"] = _by_label(samples, "bigfleet_shard_actions_total", "type")
    result["domainsMoved"] = _by_label(samples, "bigfleet_coordinator_domains_moved_total", "cause")
    result["durations"] = numbers(observed)
    if machines and (replicas := coordinators_of(endpoints)):
        result["unevenness"] = await unevenness(replicas, machines)
    return result


def _families(text: str) -> Iterable[Metric]:
    return text_string_to_metric_families(text)


def _since(
    before: Mapping[Series, Histogram], now: Mapping[Series, Histogram]
) -> dict[Series, Histogram]:
    return {series: each.since(before.get(series, Histogram())) for series, each in now.items()}


def _elections_without_fault(samples: Iterable[Sample], known: Collection[str]) -> float | None:
    """How often a healthy coordinator lost its leadership; None without coordinators."""
    if _ELECTIONS.removesuffix("_total") not in known:
        return None
    return _by_label(samples, _ELECTIONS, "predecessor").get(_HEALTHY_PREDECESSOR, 0.0)


def _by_label(samples: Iterable[Sample], name: str, label: str) -> dict[str, float]:
    """Sums over all roles, by the label's value.

    Shards report 0 for each type of action and coordinators for each rung, so a missing one does
    not exist or is misspelt.
    """
    sums: defaultdict[str, float] = defaultdict(float)
    for sample in samples:
        if sample.name == name:
            sums[sample.labels[label]] += sample.value
    return dict(sums)


class ShortfallHistory:
    """Readings of the number of unmet needs, since the last one says nothing of how it came."""

    def __init__(self) -> None:
        self._readings: list[tuple[float, int | None]] = []

    def note(self, at_seconds: float, number: int | None) -> None:
        """Add a reading; None if a shard did not answer."""
        self._readings.append((at_seconds, number))

    def numbers(self) -> dict[str, Any]:
        """The fewest and the most in the last five minutes; None if they cannot be known."""
        last = self._readings[-1][0] if self._readings else 0.0
        since = [
            each for each in self._readings if each[0] >= last - _FIVE_MINUTES - _READING_SLACK
        ]
        found = [number for _, number in since if number is not None]
        whole = bool(since) and since[0][0] <= last - _FIVE_MINUTES and len(found) == len(since)
        ends = {"least": min(found), "most": max(found)} if whole else {"least": None, "most": None}
        return {"shortfallsInFiveMinutes": ends}


async def shortfalls(shards: Sequence[Endpoint]) -> int | None:
    """The current number of unmet needs; None unless all shards answer."""
    texts = await asyncio.gather(*(_metrics(shard, _UNMET) for shard in shards))
    found = [_SHORTFALLS.findall(text or "") for text in texts]
    return int(sum(float(n) for of_shard in found for n in of_shard)) if all(found) else None


async def _metrics(role: Endpoint, *names: str) -> str | None:
    """A role's metrics, or those of these names; None if it does not answer."""
    timeout = aiohttp.ClientTimeout(total=5)
    query = [("name[]", name) for name in names]
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"http://{role.observe}/metrics", params=query) as response,
        ):
            return await response.text() if response.status == 200 else None
    except (aiohttp.ClientError, TimeoutError, OSError):
        return None
