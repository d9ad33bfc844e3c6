"""`bigfleet checkpoint` saves what a shard decides on; `bigfleet replay` decides on it again."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bigfleet.commands.flags import identity_flag, identity_of
from bigfleet.model.errors import InvalidInput

_REPLAY = """Decide on a checkpoint as this release does, with or without changes, and print what
differs: from the decision without the changes, or from that in --against. Nothing is ordered."""


def add(roles: Any) -> None:
    """Add both commands to the parser's `roles`."""
    save = roles.add_parser("checkpoint", help="save what a shard's decisions are made from")
    save.add_argument("--shard", required=True, metavar="HOST:PORT")
    identity_flag(save)
    save.add_argument("file", type=Path, metavar="FILE", help="where to write it")
    save.set_defaults(build=lambda flags: partial(_save, flags))
    replay = roles.add_parser(
        "replay", help="what a shard would decide if things were otherwise", description=_REPLAY
    )
    _add_replay_flags(replay)
    replay.set_defaults(build=lambda flags: partial(_replay, flags))


def _add_replay_flags(replay: argparse.ArgumentParser) -> None:
    replay.add_argument("file", type=Path, metavar="CHECKPOINT")
    change = replay.add_argument_group("changes, each as often as you like")
    change.add_argument(
        "--price",
        action="append",
        default=[],
        metavar="TYPE=xFACTOR",
        help="machines of this instance type cost so much more: m6i.large=x2",
    )
    change.add_argument(
        "--without-zone",
        action="append",
        default=[],
        metavar="ZONE",
        help="the zone's machines are gone, with what runs there",
    )
    change.add_argument(
        "--more-machines",
        action="append",
        default=[],
        metavar="TYPE=NUMBER",
        help="so many more machines of this instance type can be bought",
    )
    replay.add_argument(
        "--fit",
        metavar="CLUSTER/PROFILE[/GROUP]",
        help="also print how many more needs, or gangs, like this one fit",
    )
    replay.add_argument(
        "--decisions", type=Path, metavar="FILE", help="write the decision there, as JSON"
    )
    replay.add_argument(
        "--against",
        type=Path,
        metavar="FILE",
        help="compare with the decision in this file, such as one that another release wrote",
    )
    replay.add_argument("--json", action="store_true", help="everything, as JSON")


async def _save(flags: argparse.Namespace, stop: asyncio.Event) -> None:
    del stop
    from bigfleet.commands import shard_queries  # other roles do not need its libraries

    content = await shard_queries.ask(
        flags.shard, lambda shard: shard.checkpoint(), identity_of(flags)
    )
    await asyncio.to_thread(flags.file.write_bytes, content)
    print(f"{flags.file}: {len(content):,} bytes")


async def _replay(flags: argparse.Namespace, stop: asyncio.Event) -> None:
    del stop
    from bigfleet.commands import replay_text  # other roles do not need the engine
    from bigfleet.services.shard.replay import checkpoint, decisions
    from bigfleet.services.shard.replay.changes import Changes, changed

    changes = Changes(
        prices={name: _factor(name, text) for name, text in _pairs("--price", flags.price).items()},
        without_zones=frozenset(flags.without_zone),
        more_machines={
            name: _number(name, text)
            for name, text in _pairs("--more-machines", flags.more_machines).items()
        },
    )
    saved = checkpoint.decode(flags.file.read_bytes(), str(flags.file))
    before = None
    if flags.against:
        before = decisions.read(flags.against.read_bytes(), str(flags.against))
    elif changes != Changes():
        before = decisions.decisions_on(saved.inputs, saved.settings)
    inputs = changed(saved.inputs, changes)
    now = decisions.decisions_on(inputs, saved.settings)
    if flags.decisions:
        flags.decisions.write_bytes(decisions.written(now))
    fit = None
    if flags.fit:
        fit = decisions.copies_that_fit(inputs, saved.settings, flags.fit, now)
    shown = replay_text.as_json if flags.json else replay_text.as_text
    print(shown(now, before, flags.fit or "", fit))


def _pairs(flag: str, texts: Sequence[str]) -> Mapping[str, str]:
    pairs = [text.partition("=") for text in texts]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise InvalidInput(flag, f"{name}{equals}{value}", "is not TYPE=VALUE")
    if len({name for name, *_ in pairs}) < len(pairs):
        raise InvalidInput(flag, ", ".join(texts), "names an instance type twice")
    return {name: value for name, _, value in pairs}


def _factor(name: str, text: str) -> float:
    try:
        factor = float(text.removeprefix("x"))
    except ValueError:
        factor = -1.0
    if not 0 <= factor < float("inf"):
        raise InvalidInput(f"--price {name}", text, "is not a factor such as x2 or x0.5")
    return factor


def _number(name: str, text: str) -> int:
    if not (text.isdecimal() and 0 < int(text) <= 10**6):
        raise InvalidInput(f"--more-machines {name}", text, "is not a number from 1 to 1,000,000")
    return int(text)
