"""What an audit loads: a user waits for it each time."""

from __future__ import annotations

import subprocess
import sys

_LOADED = """
import importlib, pkgutil, sys
from bigfleet import audit
from bigfleet.commands import audit_text
for each in pkgutil.walk_packages(audit.__path__, "bigfleet.audit."):
    importlib.import_module(each.name)
print("bigfleet.audit.collect.shard" in sys.modules)
print(sorted({"numba", "bigfleet.engine.decide", "bigfleet.services.shard.role"} & {*sys.modules}))
"""


def test_a_checkpoint_is_read_without_the_engine_that_decides() -> None:
    """The compiler that the engine needs takes a third of what all else takes."""
    run = subprocess.run(
        [sys.executable, "-c", _LOADED], capture_output=True, text=True, check=True
    )
    assert run.stdout == "True\n[]\n"
