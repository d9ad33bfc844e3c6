"""Compiles the inner loops of a decision.

A kernel is an ordinary Python function over numpy arrays, which numba compiles on first use and
keeps on disk: beside the source, or in NUMBA_CACHE_DIR where that cannot be written. It runs
without the interpreter's lock, so that sessions are served meanwhile. With NUMBA_DISABLE_JIT=1 in
the environment it stays the Python function that it is, and gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

_Function = TypeVar("_Function", bound=Callable[..., object])


def kernel(function: _Function) -> _Function:
    """`function`, compiled."""
    try:
        return cast("_Function", njit(cache=True, nogil=True)(function))
    except RuntimeError:  # there is no folder that it could be kept in
        return cast("_Function", njit(nogil=True)(function))
