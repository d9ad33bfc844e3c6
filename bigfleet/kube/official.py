"""What is used of the official client: its asynchronous half, and how it reads quantities.

`import kubernetes` loads the blocking half as well, with two more HTTP libraries: a fifth of the
time that it takes to import what uses a cluster.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

_PACKAGE = "kubernetes"
# What the `__init__.py` of a package imports besides.
_UNUSED = {
    "kubernetes": (
        *("client", "config", "dynamic", "informer"),
        *("leaderelection", "stream", "utils", "watch"),
    ),
    "kubernetes.aio": ("dynamic",),
}


@contextmanager
def _without_what_is_unused() -> Iterator[None]:
    """Empty modules stand for it inside the `with` block; later imports get the real ones."""
    if _PACKAGE in sys.modules:
        yield
        return
    stand_ins = {
        f"{package}.{name}": ModuleType(name)
        for package, names in _UNUSED.items()
        for name in names
    }
    for name, module in stand_ins.items():
        # So that a module of it can be imported without the package's own imports.
        module.__path__ = [str(_folder() / Path(*name.split(".")))]
    sys.modules |= stand_ins
    try:
        yield
    finally:
        for name, module in stand_ins.items():
            del sys.modules[name]
            package, _, attribute = name.rpartition(".")
            imported = sys.modules.get(package)
            if getattr(imported, attribute, None) is module:
                delattr(imported, attribute)


def _folder() -> Path:
    """Where packages are installed."""
    spec = find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(_PACKAGE)
    return Path(spec.origin).parents[1]


with _without_what_is_unused():
    from kubernetes.aio import config
    from kubernetes.aio.client.api_client import ApiClient
    from kubernetes.aio.client.configuration import Configuration
    from kubernetes.aio.config import ConfigException
    from kubernetes.utils.quantity import parse_quantity

__all__ = ["ApiClient", "ConfigException", "Configuration", "config", "parse_quantity"]
