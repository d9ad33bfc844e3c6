"""The example provider, as the guide has it: as a process, and as a module to plant faults in."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

PATH = Path(__file__).parents[2] / "examples" / "provider" / "provider.py"


def load() -> ModuleType:
    """The module; its names are what the guide shows."""
    spec = importlib.util.spec_from_file_location("example_provider", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
