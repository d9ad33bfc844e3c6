"""Suggests the key or name that was meant by an unknown one.

Keys contain their units, so the most common mistake is the right quantity in the wrong unit; that
is tried before spelling.
"""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

_UNIT_WORDS = {
    "PodsPerSecond": "pods per second",
    "PodsPerMinute": "pods per minute",
    "PerSecond": "units per second",
    "PerMinute": "units per minute",
    "PerHour": "units per hour",
    "Milliseconds": "milliseconds",
    "Millis": "milliseconds",
    "Ms": "milliseconds",
    "Seconds": "seconds",
    "Secs": "seconds",
    "Minutes": "minutes",
    "Hours": "hours",
    "Millicores": "thousandths of a core",
    "Cores": "cores",
    "Mebibytes": "MiB",
    "Gibibytes": "GiB",
    "Bytes": "bytes",
    "Fraction": "a fraction between 0 and 1",
    "Percent": "percent",
    "Factor": "a multiple",
    "Pods": "pods",
    "Dollars": "dollars",
}


def unknown_key_hint(
    key: str, parent: str, siblings: Collection[str], known_paths: Collection[str]
) -> str:
    """What to write instead of `key` under `parent`, as one clause."""
    return (
        _same_quantity(key, siblings)
        or _known_elsewhere(key, known_paths)
        or _closest(key, siblings)
        or f"unknown key; {parent or 'the file'} has the keys: {', '.join(sorted(siblings))}"
    )


def did_you_mean(name: str, known: Collection[str]) -> str:
    """A suffix that suggests the nearest known name and lists them all."""
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    guess = f"; did you mean {near[0]}?" if near else ""
    return f"{guess} (known: {', '.join(sorted(known)) or 'none'})"


def _stem(key: str) -> tuple[str, str]:
    """Split `key` into quantity and unit."""
    for unit in sorted(_UNIT_WORDS, key=len, reverse=True):
        if key.endswith(unit) and key != unit:
            return key[: -len(unit)], unit
        if key == unit[:1].lower() + unit[1:]:
            return "", unit
    return key, ""


def _same_quantity(key: str, siblings: Collection[str]) -> str:
    stem, _ = _stem(key)
    for sibling in siblings:
        sibling_stem, unit = _stem(sibling)
        if unit and (sibling_stem or sibling) == (stem or key):
            return f"unknown key; {stem or 'this'} is in {_UNIT_WORDS[unit]}: {sibling}"
        if unit and not sibling_stem and not stem:
            return f"unknown key; this is in {_UNIT_WORDS[unit]}: {sibling}"
    return ""


def _known_elsewhere(key: str, known_paths: Collection[str]) -> str:
    homes = [path for path in known_paths if path.endswith(f".{key}")]
    return f"unknown key here; it belongs at {' or '.join(homes)}" if homes else ""


def _closest(key: str, siblings: Collection[str]) -> str:
    near = get_close_matches(key, siblings, n=1, cutoff=0.6)
    return f"unknown key; did you mean {near[0]}?" if near else ""
