"""Kubernetes quantities as int64, parsed once where they come in.

CPU is in millicores, byte-sized resources in KiB, all others in thousandths. Requests round up and
capacity rounds down, so that nothing appears to fit that does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import lru_cache

from bigfleet.model.errors import InvalidInput

CPU, MEMORY, PODS = "cpu", "memory", "pods"

# One machine's amount. 500,000 such machines still sum to less than 2**63.
MAX_MACHINE_UNITS = 2**43
# One need's summed amount.
MAX_AGGREGATE_UNITS = 2**61

_SUFFIX = {
    "": Decimal(1),
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"),
    "k": Decimal(10) ** 3, "M": Decimal(10) ** 6, "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12, "P": Decimal(10) ** 15, "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10, "Mi": Decimal(2) ** 20, "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40, "Pi": Decimal(2) ** 50, "Ei": Decimal(2) ** 60,
}  # fmt: skip
_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<number>\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})"
    r"(?:[eE](?P<exponent>[+-]?\d{1,2})|(?P<suffix>[numkMGTPE]|[KMGTPE]i))?"
)


def is_bytes(resource: str) -> bool:
    """Whether `resource` is measured in bytes."""
    return resource in (MEMORY, "ephemeral-storage", "storage") or resource.startswith("hugepages-")


def _units_per_one(resource: str) -> Decimal:
    return Decimal(1) / 1024 if is_bytes(resource) else Decimal(1000)


def parse(resource: str, quantity: str, *, round_up: bool, limit: int = MAX_MACHINE_UNITS) -> int:
    """Parse `quantity` to this module's units; InvalidInput if malformed, negative or above
    `limit`.
    """
    cacheable = len(resource) + len(quantity) <= _MAX_CACHED_CHARACTERS
    return (_parse_cached if cacheable else _parse_uncached)(resource, quantity, round_up, limit)


def _parse_uncached(resource: str, quantity: str, round_up: bool, limit: int) -> int:
    match = _QUANTITY.fullmatch(quantity)
    if match is None:
        raise InvalidInput(resource, quantity, "is not a Kubernetes quantity such as 500m or 2Gi")
    if match["sign"] == "-" and Decimal(match["number"]) != 0:
        raise InvalidInput(resource, quantity, "is negative; resources are amounts >= 0")
    scale = (
        Decimal(10) ** int(match["exponent"])
        if match["exponent"]
        else _SUFFIX[match["suffix"] or ""]
    )
    units = Decimal(match["number"]) * scale * _units_per_one(resource)
    rounded = int(units.to_integral_value(ROUND_CEILING if round_up else ROUND_FLOOR))
    if rounded > limit:
        raise InvalidInput(
            resource, quantity, f"is more than {text(resource, limit)}, the most accepted"
        )
    return rounded


# A few quantities occur a hundred thousand times; unusually long ones are not cached.
_MAX_CACHED_CHARACTERS = 64
_parse_cached = lru_cache(maxsize=2**15)(_parse_uncached)


def parse_requests(quantities: Mapping[str, str], limit: int = MAX_MACHINE_UNITS) -> dict[str, int]:
    """Parse requests by resource name, rounded up."""
    return {name: parse(name, q, round_up=True, limit=limit) for name, q in quantities.items()}


def parse_capacity(quantities: Mapping[str, str]) -> dict[str, int]:
    """Parse capacity by resource name, rounded down."""
    return {name: parse(name, q, round_up=False) for name, q in quantities.items()}


def text(resource: str, units: int) -> str:
    """Format `units` as a Kubernetes quantity, which `parse` turns back into `units`."""
    if is_bytes(resource):
        return f"{units}Ki"
    return str(units // 1000) if units % 1000 == 0 else f"{units}m"


def texts(units: Mapping[str, int]) -> dict[str, str]:
    """`text` for each entry."""
    return {name: text(name, amount) for name, amount in units.items()}


def add(summands: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Sum by resource name."""
    total: dict[str, int] = {}
    for summand in summands:
        for name, amount in summand.items():
            total[name] = total.get(name, 0) + amount
    return total
