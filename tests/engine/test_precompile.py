"""The first decision does not wait for compilation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_DECIDES = """
from dataclasses import replace
from tests.engine.engine_random import random_case, random_cycle_memory
import importlib
import pkgutil
from bigfleet.engine import kernels, precompile
from bigfleet.engine.decide import decide
from bigfleet.engine.cycle_memory import CycleMemory
from bigfleet.engine.snapshot import EngineConfig
from bigfleet.model.need import sizes_of

names = [each.name for each in pkgutil.iter_modules(kernels.__path__)]
modules = [importlib.import_module(f"{kernels.__name__}.{name}") for name in names]

def versions():
    return {
        (module.__name__, name): len(value.signatures)
        for module in modules
        for name, value in vars(module).items()
        if hasattr(value, "signatures")
    }

precompile.precompile()
before = versions()
for seed in range(60):
    fleet, demand = random_case(seed)
    decide(fleet, demand, random_cycle_memory(seed, fleet, demand), EngineConfig(), 10_000.0)
    # Pods that ask for nothing take places only.
    places = sizes_of([({"pods": 1}, 3)])
    needs = [replace(each, sizes=places) for each in demand.needs]
    decide(fleet, replace(demand, needs=needs), CycleMemory(), EngineConfig(), 10_000.0)
print(sum(before.values()) > 0, versions() == before)
"""


def _run(code: str, **environment: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        cwd=_ROOT,
    )
    return run.stdout + run.stderr


def test_no_decision_compiles_anything_afterwards() -> None:
    """All kernels have then been compiled for all types that they are called with."""
    assert _run(_DECIDES) == "True True\n"


def test_installations_with_equal_sources_share_what_is_compiled(tmp_path: Path) -> None:
    """A new checkout, or environment, does not compile all of it again."""
    code = (
        "from bigfleet.engine.kernels import scoring\n"
        "from bigfleet.engine.kernels import gang_domains\n"
        "print(scoring.__file__)\n"
        "print([k.stats.cache_path for k in (scoring.fits, gang_domains.choose)])\n"
    )
    copy = tmp_path / "bigfleet"
    shutil.copytree(_ROOT / "bigfleet", copy, ignore=shutil.ignore_patterns("__pycache__"))
    here, there = _run(code), _run(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{code}")
    assert there.startswith(f"{copy}/")
    assert here.splitlines()[1:] == there.splitlines()[1:]


def test_an_empty_cache_begins_with_what_an_image_was_built_with(tmp_path: Path) -> None:
    """A shard that has lost its volume, or never had one, need not compile for a minute."""
    image = tmp_path / "image"
    shutil.copytree(
        _ROOT / "bigfleet", image / "bigfleet", ignore=shutil.ignore_patterns("__pycache__")
    )
    compile_ = (
        f"import sys; sys.path.insert(0, {str(image)!r})\n"
        "from bigfleet.engine import precompile\n"
        "precompile.precompile()\n"
    )
    # What was compiled before stands for the step that compiles in the image.
    compiled = Path(_run("from bigfleet import jit; print(jit.config.CACHE_DIR)").strip())
    assert _run("from bigfleet.engine import precompile; precompile.precompile()") == ""
    shutil.copytree(compiled, image / "bigfleet" / "compiled" / compiled.name)
    stats = (
        "from bigfleet.engine.kernels import scoring\n"
        "print(scoring.fits.stats.cache_path, sum(scoring.fits.stats.cache_misses.values()))\n"
    )
    path, misses = _run(compile_ + stats, NUMBA_CACHE_DIR=str(tmp_path / "own")).split()
    assert path.startswith(f"{tmp_path}/own/")
    assert misses == "0"


def test_where_nothing_can_be_kept_kernels_are_compiled_all_the_same() -> None:
    """A container whose file system is read-only still decides. No kernel can be kept, and what a
    small decision calls is compiled; what kernels compile to does not depend on being kept.
    """
    code = (
        "import gc\n"
        "from bigfleet import jit\n"
        "jit.config.CACHE_LOCATOR_CLASSES = 'ZipCacheLocator'  # finds nothing outside archives\n"
        "from numba.core.dispatcher import Dispatcher\n"
        "from bigfleet.engine import precompile\n"
        "from tests.engine.engine_rig import configured, decided\n"
        "print(decided([configured('m')]))\n"
        "kernels = [each for each in gc.get_objects() if isinstance(each, Dispatcher)\n"
        "           and each.py_func.__module__.startswith('bigfleet.')]\n"
        "print(len(kernels) > 50, {each.stats.cache_path for each in kernels},\n"
        "      any(each.signatures for each in kernels))\n"
    )
    assert _run(code) == "['Reclaim m']\nTrue {None} True\n"


def test_no_linear_algebra_and_no_parser_of_c_is_loaded_with_the_kernels() -> None:
    """A process that decides does without scipy's and cffi's, where they are installed; others may
    load them.
    """
    code = (
        "import importlib, sys\n"
        "from bigfleet.engine import precompile\n"
        "precompile.precompile()\n"
        "print({'scipy.linalg', 'cffi', 'pycparser'} & {*sys.modules})\n"
        "names = ('scipy.linalg.cython_blas', 'cffi')\n"
        "print(*(importlib.import_module(name).__name__ for name in names))\n"
    )
    assert _run(code) == "set()\nscipy.linalg.cython_blas cffi\n"
