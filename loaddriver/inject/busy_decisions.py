"""A `bigfleet` whose shards compute longer for each decision than they need to.

`PYTHON busy_decisions.py SECONDS ROLE ARGUMENT...` is `bigfleet ROLE ARGUMENT...` of the checkout
that the interpreter belongs to. A file, not a module: that checkout may be older than this one.
"""

from __future__ import annotations

import importlib
import sys
import time
from typing import Any

_ROLE = "shard"
_OWNER, _DECISION = "bigfleet.services.shard.decide.cycle_report", "compute"


def main(arguments: list[str]) -> int:
    """Run the role, and burn `seconds` of its CPU with each decision if it is a shard."""
    seconds, *own = arguments
    if own[:1] == [_ROLE]:
        try:
            _make_busy(importlib.import_module(_OWNER), float(seconds))
        except (ImportError, AttributeError) as error:
            print(
                f"this checkout does not decide in {_OWNER}.{_DECISION}: {error}; use a later one"
            )
            return 1
    found: int = importlib.import_module("bigfleet.__main__").main(own)
    return found


def _make_busy(owner: Any, seconds: float) -> None:
    compute = getattr(owner, _DECISION)

    def computed_longer(*arguments: Any) -> Any:
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            pass
        return compute(*arguments)

    setattr(owner, _DECISION, computed_longer)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
