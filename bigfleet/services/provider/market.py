"""The market file: prices that move and spot capacity that is interrupted, by kind of machine.

One JSON object a line, in any order, with Unix times. It stands in for what a cloud decides by
itself, and may be written or replaced while the provider runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from bigfleet.model.errors import UNDECODABLE, InvalidInput
from bigfleet.model.machine import CapacityType, Machine

_SHOWN_CHARACTERS = 80
_Time = Annotated[float, Meta(ge=0)]
_Word = Annotated[str, Meta(min_length=1)]


class Kind(NamedTuple):
    """What has one price, and is interrupted together."""

    instance_type: str
    zone: str
    capacity_type: CapacityType

    @classmethod
    def of(cls, machine: Machine) -> Kind:
        """The kind of a machine."""
        return cls(machine.instance_type, machine.zone, machine.capacity_type)


class PriceChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="price"):
    """From `at` on, a machine of the kind costs `price_per_hour` dollars."""

    at: _Time
    instance_type: _Word
    zone: _Word
    capacity_type: Literal["BARE_METAL", "RESERVED", "ON_DEMAND", "SPOT"]
    price_per_hour: Annotated[float, Meta(ge=0)]


class Interruption(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="interruption"):
    """Spot machines of the kind are given notice `at`, and are gone `notice_seconds` later; none
    can be had from the notice until `down_seconds` after that.
    """

    at: _Time
    instance_type: _Word
    zone: _Word
    notice_seconds: Annotated[float, Meta(ge=0)]
    down_seconds: Annotated[float, Meta(ge=0)]

    @property
    def gone_at(self) -> float:
        """When its machines are switched off."""
        return self.at + self.notice_seconds

    @property
    def ends_at(self) -> float:
        """When there are machines of the kind again."""
        return self.gone_at + self.down_seconds


@dataclass(frozen=True)
class Market:
    """All changes by kind, each kind's in order of time; empty without a market file."""

    prices: Mapping[Kind, tuple[PriceChange, ...]] = field(default_factory=dict)
    interruptions: Mapping[Kind, tuple[Interruption, ...]] = field(default_factory=dict)

    def quoted(self, machine: Machine, now_unix_seconds: float) -> Machine:
        """The machine, whose price and risk are its inventory's, as the market has it now: the risk
        of a kind that is interrupted is 1.
        """
        kind = Kind.of(machine)
        past = [each for each in self.prices.get(kind, ()) if each.at <= now_unix_seconds]
        price = past[-1].price_per_hour if past else machine.price_per_hour
        is_interrupted = self.interruption(machine, now_unix_seconds) is not None
        risk = 1.0 if is_interrupted else machine.interruption_probability
        if (price, risk) == (machine.price_per_hour, machine.interruption_probability):
            return machine
        return replace(machine, price_per_hour=price, interruption_probability=risk)

    def interruption(self, machine: Machine, now_unix_seconds: float) -> Interruption | None:
        """The interruption of the machine's kind that is in force, from its notice on."""
        found = self.interruptions.get(Kind.of(machine), ())
        return next((i for i in found if i.at <= now_unix_seconds < i.ends_at), None)

    def is_gone(self, machine: Machine, now_unix_seconds: float) -> bool:
        """Whether the notice of its kind is over, and the kind is not back."""
        found = self.interruption(machine, now_unix_seconds)
        return found is not None and found.gone_at <= now_unix_seconds

    def next_change(self, now_unix_seconds: float) -> float:
        """The Unix time of the first change after now; infinite if there is none."""
        return min((at for at in self._times() if at > now_unix_seconds), default=math.inf)

    def _times(self) -> Iterator[float]:
        for moves in self.prices.values():
            yield from (each.at for each in moves)
        for each in (i for found in self.interruptions.values() for i in found):
            yield from (each.at, each.gone_at, each.ends_at)


def read(path: Path) -> Market:
    """The market in the file; without the file nothing changes.

    InvalidInput names file, line and field.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return Market()
    except OSError as error:
        raise InvalidInput("market", str(path), f"cannot be read: {error.strerror}") from None
    decoder = msgspec.json.Decoder(PriceChange | Interruption)
    lines = enumerate(content.split(b"\n"), start=1)
    return _market(_decoded(decoder, raw, f"{path} line {n}") for n, raw in lines if raw.strip())


def _decoded(
    decoder: msgspec.json.Decoder[PriceChange | Interruption], raw: bytes, where: str
) -> PriceChange | Interruption:
    try:
        return decoder.decode(raw)
    except UNDECODABLE as error:
        shown = raw[:_SHOWN_CHARACTERS].decode(errors="replace")
        raise InvalidInput(where, shown, f"is not a change of the market: {error}") from None


def _market(changes: Iterable[PriceChange | Interruption]) -> Market:
    prices: dict[Kind, list[PriceChange]] = {}
    interruptions: dict[Kind, list[Interruption]] = {}
    for each in sorted(changes, key=lambda change: change.at):
        if isinstance(each, PriceChange):
            kind = Kind(each.instance_type, each.zone, CapacityType[each.capacity_type])
            prices.setdefault(kind, []).append(each)
        else:
            kind = Kind(each.instance_type, each.zone, CapacityType.SPOT)
            interruptions.setdefault(kind, []).append(each)
    return Market(
        {kind: tuple(found) for kind, found in prices.items()},
        {kind: tuple(found) for kind, found in interruptions.items()},
    )
