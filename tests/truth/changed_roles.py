"""BigFleet's own roles, some of which hear of the world late: the real ones, as a run starts them.

`late_python` makes a virtual environment that is the tests' own but for one thing: each process
imports this module at its start, and a role with a delay gets it. The harness, which starts the
roles with its own interpreter, is told of nothing.
"""

from __future__ import annotations

import asyncio
import importlib.abc
import importlib.machinery
import json
import sys
import sysconfig
import time
import venv
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

_DELAYS = "delays.json"


def late_python(folder: Path, delays: Mapping[str, float]) -> Path:
    """An interpreter whose BigFleet roles hear that much later, in seconds by role:

    - pod-controller: of Pods
    - operator: of CapacityRequests
    - shard: of the demand that it has accepted and journaled, when it decides
    """
    venv.EnvBuilder(symlinks=True).create(folder)
    (folder / _DELAYS).write_text(json.dumps(dict(delays)))
    own = sysconfig.get_path("purelib", vars={"base": str(folder)})
    packages, module = sysconfig.get_path("purelib"), Path(__file__)
    (Path(own) / "late.pth").write_text(
        f"import site, sys; site.addsitedir({packages!r}); "
        f"sys.path.append({str(module.parent)!r}); import {module.stem}; {module.stem}.install()\n"
    )
    return folder / "bin" / "python"


def install() -> None:
    """Delay this process, if it is a role with a delay."""
    arguments, delays = sys.orig_argv, Path(sys.prefix) / _DELAYS
    if "bigfleet" not in arguments or not delays.exists():
        return
    role = arguments[arguments.index("bigfleet") + 1]
    seconds = json.loads(delays.read_text()).get(role, 0)
    if seconds:
        module, change = _CHANGES[role]
        sys.meta_path.insert(0, _AfterImport(module, lambda loaded: change(loaded, seconds)))


class _AfterImport(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Changes one module as soon as it has been loaded."""

    def __init__(self, name: str, change: Callable[[ModuleType], None]) -> None:
        self._name, self._change = name, change

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        assert spec is not None
        self._loader = spec.loader
        spec.loader = self
        return spec

    def create_module(self, _: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        assert self._loader is not None
        self._loader.exec_module(module)
        self._change(module)


def _later(owner: type, names: Sequence[str], seconds: float) -> None:
    """Calls of these methods take effect later, in their order."""

    def delayed(method: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            asyncio.get_running_loop().call_later(seconds, method, *arguments)

        return call

    for name in names:
        setattr(owner, name, delayed(getattr(owner, name)))


def _late_demand(module: ModuleType, seconds: float) -> None:
    """The demand that decisions see is as old as that."""
    current, history = module.NeedsTable.demand, deque[tuple[float, Any]]()

    def demand(needs: Any) -> Any:
        now = time.monotonic()
        history.append((now, current(needs)))
        while len(history) > 1 and history[1][0] <= now - seconds:
            history.popleft()
        return history[0][1]

    module.NeedsTable.demand = demand


_CHANGES: Mapping[str, tuple[str, Callable[[ModuleType, float], None]]] = {
    "pod-controller": (
        "bigfleet.controllers.pod_controller.request_writer",
        lambda module, seconds: _later(module.RequestWriter, ("set_desired", "forget"), seconds),
    ),
    "operator": (
        "bigfleet.controllers.operator.request_cache",
        lambda module, seconds: _later(module.RequestCache, ("put", "remove"), seconds),
    ),
    "shard": ("bigfleet.services.shard.demand.needs", _late_demand),
}
