"""Replayed decisions as text and as JSON. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from bigfleet.commands.tables import aligned, count
from bigfleet.services.shard.replay.decisions import (
    MAX_COPIES,
    Decisions,
    Difference,
    Order,
    by_type,
    difference,
)

_SHOWN = 20


def as_json(now: Decisions, before: Decisions | None, name: str, fit: int | None) -> str:
    """The decision, and what differs from `before`; `fit` is how many more needs `name` fit."""
    data: dict[str, Any] = {"decision": msgspec.to_builtins(now)}
    if before is not None:
        data["difference"] = msgspec.to_builtins(difference(before, now))
    if fit is not None:
        data["fit"] = {"need": name, "more": fit}
    return json.dumps(data, indent=2)


def as_text(now: Decisions, before: Decisions | None, name: str, fit: int | None) -> str:
    """A table of orders and cost, and the orders: those that differ from `before`, or all."""
    lines = list(_table(now, before))
    if before is None:
        lines += _orders("Orders", now.orders)
    else:
        lines += _differences(difference(before, now))
    if fit is not None:
        more = "at least " if fit == MAX_COPIES else ""
        lines += ["", f"{more}{count(fit, 'more need')} like {name} fit."]
    return "\n".join(lines)


def _table(now: Decisions, before: Decisions | None) -> Iterator[str]:
    columns = {"decided": now} if before is None else {"before": before, "now": now}
    counts = [by_type(each.orders) for each in columns.values()]
    kinds = sorted({kind for each in counts for kind in each})
    rows = [[" ".join(kind), *(f"{each.get(kind, 0):,}" for each in counts)] for kind in kinds]
    for what, of in _TOTALS.items():
        rows.append([what, *(of(each) for each in columns.values())])
    widest = max(len(cell) for row in [["", *columns], *rows] for cell in row[1:])
    headers = ["", *(title.rjust(widest) for title in columns)]
    yield from aligned(headers, [[row[0], *(c.rjust(widest) for c in row[1:])] for row in rows])


_TOTALS: Mapping[str, Callable[[Decisions], str]] = {
    "needs short": lambda decided: f"{len(decided.short):,}",
    "pods short": lambda decided: f"{sum(each.pods for each in decided.short):,}",
    "dollars an hour": lambda decided: f"{decided.dollars_per_hour:,.2f}",
}


def _differences(found: Difference) -> Iterator[str]:
    if not (found.added or found.removed or found.short_pods):
        yield from ("", "The decisions are the same.")
    yield from _orders("Orders added", found.added)
    yield from _orders("Orders removed", found.removed)
    needs = [f"{need}: {was:,} -> {now:,} pods" for need, (was, now) in found.short_pods.items()]
    yield from _listed("Short", needs)


def _orders(title: str, orders: Sequence[Order]) -> Iterator[str]:
    yield from _listed(title, [_sentence(order) for order in orders])


def _listed(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield from ("", f"{title}:", *(f"  {line}" for line in lines[:_SHOWN]))
    if len(lines) > _SHOWN:
        yield f"  and {len(lines) - _SHOWN:,} more; --json has all"


def _sentence(order: Order) -> str:
    where = ", ".join(part for part in (order.instance_type, order.zone) if part)
    purpose = f" for {order.need}" if order.need else ""
    place = f" of {order.cluster}" if order.cluster and not order.need else ""
    return f"{order.action} {order.machine} ({where}){place}{purpose}"
