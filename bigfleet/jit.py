"""Compilation of kernels, the inner loops of a decision.

A kernel is an ordinary Python function over numpy arrays, which numba compiles on first use and
caches on disk in ~/.cache/bigfleet/kernels, or in NUMBA_CACHE_DIR. Installations with equal sources
share what is there; an empty cache begins with the kernels that an image has beside its packages.
It releases the GIL, so that sessions are served meanwhile. With NUMBA_DISABLE_JIT=1 in the
environment it stays a Python function, with the same results.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit
from numba.core import config
from numba.core.caching import UserProvidedCacheLocator

_Function = TypeVar("_Function", bound=Callable[..., object])
_ENGINE = Path(__file__).parent / "engine"
# By the library, the module of numba that would use it.
_UNUSED = {
    "scipy.linalg.cython_blas": "numba.np.arraymath",
    "cffi": "numba.core.typing.cffi_utils",
}


class CacheLocator(UserProvidedCacheLocator):
    """Finds a kernel wherever its sources lie: the directory says what is in them."""

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        """The subdirectory for kernels of a source file. numba's own depends on the whole path."""
        folder = Path(py_file).absolute().parent
        if folder.is_relative_to(_ENGINE):
            return folder.relative_to(_ENGINE).as_posix()
        return str(super().get_suitable_cache_subpath(py_file))  # type: ignore[no-untyped-call]


_SHIPPED = Path(__file__).resolve().parents[2] / "kernels"


def _cache_directory() -> str:
    """The cache directory for the current state of the sources."""
    # numba does not invalidate a kernel when another kernel that it calls has changed.
    sources = sorted(_ENGINE.rglob("*.py"))
    digest = hashlib.sha256(b"\0".join(source.read_bytes() for source in sources))
    configured: str = config.CACHE_DIR  # type: ignore[attr-defined]
    base = configured or Path("~/.cache/bigfleet/kernels").expanduser()
    directory = Path(base) / digest.hexdigest()[:16]
    _begin_with(_SHIPPED / directory.name, directory)
    return str(directory)


def _begin_with(compiled: Path, directory: Path) -> None:
    """Copy the kernels that an image was built with; numba's own cache must be writable."""
    if directory.exists() or not compiled.is_dir():
        return
    draft = directory.with_name(f".{directory.name}-{os.getpid()}")
    with suppress(OSError):  # another process was faster, or nothing can be written
        shutil.copytree(compiled, draft)
        draft.rename(directory)
    shutil.rmtree(draft, ignore_errors=True)


config.CACHE_DIR = _cache_directory()  # type: ignore[attr-defined]
# Where that directory is not writable, as numba does it.
_LOCATORS = (f"{__name__}.{CacheLocator.__name__}", "InTreeCacheLocator", "UserWideCacheLocator")
config.CACHE_LOCATOR_CLASSES = ",".join(_LOCATORS)  # type: ignore[attr-defined]


def _do_without_unused() -> None:
    """Before its first kernel numba looks whether scipy has linear algebra for it, and whether
    there is cffi. To load them takes a quarter of the time until the first decision, and no kernel
    uses them.
    """
    for library, user in _UNUSED.items():
        if library in sys.modules:
            continue
        sys.modules[library] = None  # type: ignore[assignment]  # importing it fails
        try:
            importlib.import_module(user)
        finally:
            del sys.modules[library]


_do_without_unused()


def kernel(function: _Function) -> _Function:
    """Compile `function` with numba."""
    return _compiled(function)


def lean_kernel(function: _Function) -> _Function:
    """Compile `function`, which must allocate no arrays and return none, without counting
    references to the arrays that it uses.

    For what runs in the innermost loops: taking an array out of a tuple counts a reference, with an
    atomic operation that costs more than a score.
    """
    return _compiled(function, _nrt=False)


def _compiled(function: _Function, **options: bool) -> _Function:
    compile_: Callable[..., Any] = njit
    try:
        return cast("_Function", compile_(cache=True, nogil=True, **options)(function))
    except RuntimeError:  # no cache directory is writable
        return cast("_Function", compile_(nogil=True, **options)(function))
