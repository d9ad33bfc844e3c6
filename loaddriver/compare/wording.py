"""The sentences of a verdict: what changed, by how much, how sure, and what would settle it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loaddriver.compare.comparison import (
    EndpointResult,
    EventResult,
    MachineSpeed,
    Overall,
    Voids,
)
from loaddriver.compare.exact import suspicious, too_many
from loaddriver.compare.sequential import MOST_PAIRS, Spending, pairs_to_find

_FEWEST = 2
_NO_PAIR = "no pair has a valid run on both sides"
_ONE_PAIR = "one pair does not show how much pairs vary"


def why(
    verdict: Overall,
    endpoints: Sequence[EndpointResult],
    events: Sequence[EventResult],
    voids: Voids,
    pairs: int,
) -> list[str]:
    """The reasons for a verdict, the most important first; never empty."""
    found = [sentence(each) for each in endpoints if each.verdict == "regression"]
    found += [event_sentence(each, pairs) for each in events if each.verdict == "regression"]
    if too_many(voids):
        found.append(void_sentence(voids))
    found += [sentence(each) for each in endpoints if each.verdict == "improvement"]
    if verdict == "not enough data":
        found += _unsettled(endpoints, events, voids, pairs)
    return [*(found or [_nothing_worse(endpoints, pairs)]), *_more_often(events, voids, pairs)]


def sentence(result: EndpointResult) -> str:
    """What is known of one endpoint."""
    if result.verdict == "not measured":
        return f"{result.name}: not measured by this profile"
    if result.effect_percent is None or result.interval_percent is None:
        return f"{result.name}: not known for enough pairs"
    change = percent(result.effect_percent)
    low, high = map(percent, result.interval_percent)
    where = f"; at least half of it in {result.attributed}" if result.attributed else ""
    return f"{result.name}: {result.verdict}, {change} ({low} to {high}){where}"


def noise_sentence(result: EndpointResult, plan: Spending) -> str:
    """What pairs of equal systems say of an endpoint: how small a change can be seen."""
    if result.pair_deviation is None:
        return f"{result.name}: measured in too few pairs"
    varies = f"{result.name}: pairs vary by {100 * result.pair_deviation:.1f} %"
    effect = f"a change of {100 * (plan.least_effect - 1):.0f} %"
    pairs = pairs_to_find(result.pair_deviation, plan)
    if pairs is None:
        return f"{varies}; {effect} is found in fewer than 95 % of sessions"
    return f"{varies}; {pairs} of them show {effect} in 95 % of sessions"


def speed_sentence(speed: MachineSpeed) -> str:
    """How fast the machine was for HEAD, and what that means for the table."""
    each = (f"{name} took {percent(change)}" for name, change in speed.components.items())
    took = " and ".join(each)
    match speed.unusable:
        case "":
            slower = speed.slower_percent
            told = (
                f"The machine was {abs(slower):.1f} % {'slower' if slower > 0 else 'faster'} for "
                f"HEAD: {took} CPU for a pod, which both sides share."
            )
            if speed.waits_left_out:
                return (
                    f"{told} Changes of CPU are relative to that; due to bind and scheduled are "
                    "not judged, since these runs were not interleaved, and how much longer pods "
                    "wait on a slower machine is not known. Interleave runs instead of adding some."
                )
            return f"{told} Changes of CPU, due to bind and scheduled are relative to that."
        case "at once":
            return (
                "Times are as measured: both runs of a pair were played at the same time, on a "
                f"machine of one speed{f'; {took} CPU for a pod' if took else ''}."
            )
        case "unknown":
            return (
                "Times are as measured: the sides share too little that shows how fast the machine "
                f"was for each{f'; {took} CPU for a pod' if took else ''}."
            )
        case "disagreement":
            reason = "one of them does more or less for HEAD"
        case "writes":
            reason = "HEAD's pods took more or fewer writes, which may be work of both"
    return (
        f"Times are as measured: {took} CPU for a pod, which both sides share, but {reason}, so "
        "that these do not show how fast the machine was."
    )


def event_sentence(result: EventResult, pairs: int) -> str:
    """In how many runs of each side something happened."""
    return (
        f"{result.name}: in {result.head_runs} of {pairs} runs of HEAD ({result.head_count} in "
        f"all) and in {result.base_runs} of BASE ({result.base_count})"
    )


def percent(value: float) -> str:
    """A signed change, with decimals where it is small."""
    return f"{value:+.{1 if abs(value) < 100 else 0}f} %"


def tail_text(value: float | None) -> str:
    """A probability, never rounded to zero."""
    if value is None:
        return "-"
    return "< 0.0001" if value < 0.0001 else f"{value:.4f}"


def void_sentence(voids: Voids) -> str:
    """How many runs of each side were void, how likely that is by chance, and why they were."""
    total = voids.base + voids.head
    reasons = "; ".join(dict.fromkeys(voids.reasons))
    return (
        f"{total} runs were void, {voids.head} of HEAD and {voids.base} of BASE; by chance HEAD "
        f"has as many with probability {tail_text(voids.tail)}: {reasons}"
    )


def _unsettled(
    endpoints: Sequence[EndpointResult],
    events: Sequence[EventResult],
    voids: Voids,
    pairs: int,
) -> Iterator[str]:
    if pairs < _FEWEST:
        yield _NO_PAIR if not pairs else _ONE_PAIR
    else:
        for each in endpoints:
            if each.verdict == "not enough data":
                yield f"{sentence(each)}; {_settled_by(each)}"
        if all(each.verdict == "not measured" for each in endpoints):
            yield "no endpoint was measured on both sides"
    for event in events:
        if event.verdict == "not enough data":
            yield f"{event_sentence(event, pairs)}: suspicious, and not proven"
    if suspicious(voids) and not too_many(voids):
        yield f"suspicious, and not proven: {void_sentence(voids)}"


def _more_often(events: Sequence[EventResult], voids: Voids, pairs: int) -> Iterator[str]:
    """What happened more often in HEAD and decides nothing: a reader wants to know it."""
    for event in events:
        if event.verdict == "same" and event.head_count > event.base_count:
            yield f"{event_sentence(event, pairs)}, which may be chance"
    if voids.base < voids.head and not (too_many(voids) or suspicious(voids)):
        yield void_sentence(voids)


def _settled_by(result: EndpointResult) -> str:
    if result.effect_percent is None:
        return "it is not known for both sides of all pairs"
    if result.pairs_to_settle is None:
        return "no number of pairs that is worth running would settle it"
    beyond = (
        f", more than the {MOST_PAIRS} of a session" if result.pairs_to_settle > MOST_PAIRS else ""
    )
    return f"about {result.pairs_to_settle} pairs would settle it{beyond}"


def _nothing_worse(endpoints: Sequence[EndpointResult], pairs: int) -> str:
    same = sum(each.verdict == "same" for each in endpoints)
    shown = f"{same} of {len(endpoints)} endpoints are the same within the least effect"
    return f"{shown}, in {pairs} pairs"
