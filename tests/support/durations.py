"""How long files of tests take: for the order that they are begun in, and for the time left.

A run of whole files leaves what it saw in pytest's cache. What a fresh checkout expects is a copy:
`cp .pytest_cache/v/bigfleet/seconds tests/support/seconds.json` after `make test`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

_FRESH = Path(__file__).with_name("seconds.json")
_KEY = "bigfleet/seconds"
_UNKNOWN_SECONDS = 1.0


def file_of(nodeid: str) -> str:
    """The file of a test."""
    return nodeid.partition("::")[0]


def known_seconds(config: pytest.Config) -> dict[str, float]:
    """Seconds by file, as seen last."""
    fresh: dict[str, float] = json.loads(_FRESH.read_text())
    cache = _cache(config)
    return fresh | (cache.get(_KEY, {}) if cache else {})


def remember(config: pytest.Config, seconds: Mapping[str, float]) -> None:
    """Keep what this run saw, unless it ran parts of files."""
    parts = config.option.keyword or any("::" in each for each in config.args)
    if (cache := _cache(config)) and not parts:
        rounded = {name: round(each, 1) for name, each in sorted(seconds.items())}
        cache.set(_KEY, cache.get(_KEY, {}) | rounded)


def expected_seconds(known: Mapping[str, float], files: Iterable[str]) -> dict[str, float]:
    """Seconds of each of the files."""
    return {name: known.get(name, _UNKNOWN_SECONDS) for name in files}


def _cache(config: pytest.Config) -> pytest.Cache | None:
    """None with `-p no:cacheprovider`."""
    return getattr(config, "cache", None)
