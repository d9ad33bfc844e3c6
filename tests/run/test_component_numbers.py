"""BigFleet's metrics become numbers of the summary; unreported ones stay unreadable."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from bigfleet.observe import metrics
from loaddriver.judge.gates import judge_gates
from loaddriver.profile.gates import Gate
from loaddriver.record.histograms import histograms
from loaddriver.run.scrape import ShortfallHistory, components
from loaddriver.substrates.base import Endpoint

Scrape = Callable[..., Awaitable[dict[str, Any]]]
OPERATOR = "# TYPE bigfleet_operator_session_reconnects counter\n"


def shard(**actions: float) -> str:
    """A shard's metrics, with actions by type."""
    lines = [f'bigfleet_shard_actions_total{{type="{kind}"}} {n}' for kind, n in actions.items()]
    return "\n".join(["# TYPE bigfleet_shard_actions counter", *lines, ""])


@pytest.fixture
async def scrape() -> AsyncIterator[Scrape]:
    """Scrapes roles with the given responses; None is an error."""
    async with AsyncExitStack() as stack:

        async def scraped(*answers: str | None, earlier: str = "") -> dict[str, Any]:
            endpoints = []
            for answer in answers:
                server = TestServer(serving(answer))
                await stack.enter_async_context(server)
                endpoints.append(Endpoint("role", f"127.0.0.1:{server.port}", Path()))
            first = str(endpoints[0].observe)
            before = {first: histograms(text_string_to_metric_families(earlier))}
            return await components(endpoints, before)

        yield scraped


def serving(answer: str | None) -> web.Application:
    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=answer or "", status=200 if answer is not None else 503)

    application = web.Application()
    application.router.add_get("/metrics", metrics)
    return application


def verdict(found: dict[str, Any], kind: str) -> tuple[str, float | None]:
    limit = Gate(
        name=kind,
        metric=f"components.actions.{kind}",
        op="<=",
        limit=80,
        unit="machines",
        origin="Made up for a test.",
    )
    (result,) = judge_gates({"components": found}, [limit])
    return result.verdict, result.value


async def test_an_action_that_never_happened_is_zero_and_a_misspelt_one_unreadable(
    scrape: Scrape,
) -> None:
    """So a gate on an action passes if there was none."""
    found = await scrape(shard(Bootstrap=12, Reclaim=0), OPERATOR)
    assert verdict(found, "Reclaim") == ("pass", 0)
    assert verdict(found, "Reclaims") == ("fail", None)


async def test_the_actions_of_all_shards_add_up(scrape: Scrape) -> None:
    """Each has its own fleet."""
    found = await scrape(shard(Reclaim=50), shard(Reclaim=31))
    assert verdict(found, "Reclaim") == ("fail", 81)


async def test_without_the_response_of_every_role_there_is_no_number(scrape: Scrape) -> None:
    """A partial sum would mislead."""
    found = await scrape(shard(Reclaim=0), None)
    assert found == {}
    assert verdict(found, "Reclaim") == ("fail", None)


async def test_unreported_metrics_are_not_zero(scrape: Scrape) -> None:
    """A bare run has no shard, so shortfalls are unknown."""
    found = await scrape(OPERATOR)
    assert found["shortfallsAtEnd"] is None
    assert found["sessionReconnects"] == 0
    assert found["actions"] == {}


async def test_incidents_of_every_side_add_up(scrape: Scrape) -> None:
    """An order of a deposed leader is counted by each side that rejects it."""
    text = "# TYPE bigfleet_shard_incidents counter\n"
    fenced = "# TYPE bigfleet_provider_fenced counter\nbigfleet_provider_orders_fenced_total 2\n"
    assert (await scrape(text))["incidents"] == 0
    seen = text + 'bigfleet_shard_incidents_total{type="stale_instruction"} 1\n'
    assert (await scrape(seen, fenced))["incidents"] == 3


async def test_only_elections_without_a_fault_count(scrape: Scrape) -> None:
    """A leader that resigned or died had to be replaced."""
    name = "bigfleet_coordinator_elections"
    by_predecessor = (metrics.HEALTHY_PREDECESSOR, 1), ("gone", 3)
    text = [f'{name}_total{{predecessor="{how}"}} {n}' for how, n in by_predecessor]
    first, second = f"# TYPE {name} counter\n", "\n".join([f"# TYPE {name} counter", *text, ""])
    assert (await scrape(first, second))["electionsWithoutFault"] == 1
    assert (await scrape(OPERATOR))["electionsWithoutFault"] is None


async def test_domains_that_moved_are_counted_by_what_they_moved_for(scrape: Scrape) -> None:
    """A gate on a rung that no domain moved for reads 0, and one on a misspelt rung nothing."""
    moved = 'bigfleet_coordinator_domains_moved_total{cause="%s"} %d'
    lines = ["# TYPE bigfleet_coordinator_domains_moved counter", moved % ("idle", 2), ""]
    found = await scrape("\n".join(lines), OPERATOR)
    assert found["domainsMoved"] == {"idle": 2}


def cycles(*seconds: float, phase: str = "decide") -> str:
    """The metrics of a shard whose cycles, and one phase of each, took so long."""
    registry = CollectorRegistry()
    buckets = [0.001 * 2 ** (n / 4) for n in range(77)]
    name = "bigfleet_shard_cycle_duration_seconds"
    cycle = Histogram(name, "x", registry=registry, buckets=buckets)
    name = "bigfleet_shard_cycle_phase_duration_seconds"
    part = Histogram(name, "x", ["phase"], registry=registry, buckets=buckets)
    for each in seconds:
        cycle.observe(each)
        part.labels(phase).observe(each / 2)
    return generate_latest(registry).decode()


async def test_durations_have_exact_means_since_the_load_began(scrape: Scrape) -> None:
    """A decision that is a tenth slower shows; the first cycle, which compiles, does not count."""
    found = await scrape(cycles(9.0, 0.010, 0.012), earlier=cycles(9.0))
    cycle = found["durations"]["shardCycle"]
    assert (cycle["count"], cycle["meanSeconds"]) == (2, pytest.approx(0.011, rel=1e-9))
    assert found["durations"]["shardCyclePhase"]["decide"]["sumSeconds"] == pytest.approx(0.011)
    assert found["cycleP99Seconds"] == pytest.approx(0.012, rel=0.19)


async def test_durations_of_all_shards_are_one_distribution(scrape: Scrape) -> None:
    found = await scrape(cycles(0.01), cycles(0.03, phase="claims"))
    assert found["durations"]["shardCycle"]["sumSeconds"] == pytest.approx(0.04)
    assert set(found["durations"]["shardCyclePhase"]) == {"decide", "claims"}


async def test_a_restarted_process_counts_from_its_start(scrape: Scrape) -> None:
    found = await scrape(cycles(0.02), earlier=cycles(0.5, 0.5))
    assert found["durations"]["shardCycle"]["meanSeconds"] == pytest.approx(0.02)


async def test_what_never_happened_has_no_duration(scrape: Scrape) -> None:
    """A gate on it cannot be read, and fails."""
    found = await scrape(cycles())
    assert found["durations"] == {}
    assert found["cycleP99Seconds"] is None


@pytest.mark.parametrize(
    ("readings", "found"),
    [
        ([(n * 5.0, 1) for n in range(70)], (1, 1)),
        ([(n * 5.0, 9 * (n < 5) + 1) for n in range(70)], (1, 1)),
        ([(n * 5.0, 1 + (n == 40)) for n in range(70)], (1, 2)),
        ([(n * 5.0, None if n == 40 else 1) for n in range(70)], (None, None)),
        ([(n * 5.0, 1) for n in range(30)], (None, None)),
        ([], (None, None)),
    ],
    ids=["flat", "flat at last", "not flat", "once unreadable", "too short", "never read"],
)
def test_a_number_of_shortfalls_is_flat_if_no_reading_of_five_minutes_differs(
    readings: list[tuple[float, int | None]], found: tuple[int | None, int | None]
) -> None:
    """What could not be read is not flat."""
    history = ShortfallHistory()
    for at_seconds, number in readings:
        history.note(at_seconds, number)
    ends = history.numbers()["shortfallsInFiveMinutes"]
    assert (ends["least"], ends["most"]) == found
