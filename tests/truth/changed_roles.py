"""BigFleet's own roles with a defect: the real ones, as a run starts them.

`changed_python` makes a virtual environment that is the tests' own but for one thing: each process
imports this module at its start, and a role with a defect gets it. The harness, which starts the
roles with its own interpreter, is told of nothing.
"""

from __future__ import annotations

import asyncio
import importlib.abc
import importlib.machinery
import json
import sys
import sysconfig
import threading
import time
import venv
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

_DEFECTS = "defects.json"
_LEAKED_PER_REQUEST = 10_000  # bytes


def changed_python(folder: Path, defects: Mapping[str, float]) -> Path:
    """An interpreter whose BigFleet roles have these defects, each with its amount:

    - late-pods: the pod controller hears of Pods so many seconds later
    - late-requests: the operator, of CapacityRequests
    - late-demand: the shard decides on demand that it accepted and journaled so long ago
    - repeated-decisions: the shard computes each decision so many times more
    - repeated-acknowledgements: the operator writes each so many times more
    - computing: so many threads of the shard compute without end
    - leak: the operator loses so many times 1 MB for 100 requests
    """
    venv.EnvBuilder(symlinks=True).create(folder)
    assert defects.keys() <= _CHANGES.keys()
    (folder / _DEFECTS).write_text(json.dumps(dict(defects)))
    own = sysconfig.get_path("purelib", vars={"base": str(folder)})
    packages, module = sysconfig.get_path("purelib"), Path(__file__)
    (Path(own) / "changed.pth").write_text(
        f"import site, sys; site.addsitedir({packages!r}); "
        f"sys.path.append({str(module.parent)!r}); import {module.stem}; {module.stem}.install()\n"
    )
    return folder / "bin" / "python"


def install() -> None:
    """Give this process the defects of its role."""
    arguments, defects = sys.orig_argv, Path(sys.prefix) / _DEFECTS
    if "bigfleet" not in arguments or not defects.exists():
        return
    role = arguments[arguments.index("bigfleet") + 1]
    for name, amount in json.loads(defects.read_text()).items():
        change = _CHANGES[name]
        if change.role == role:
            sys.meta_path.insert(0, _AfterImport(change, amount))


class _Change(NamedTuple):
    role: str
    module: str
    apply: Callable[[Any, float], None]


class _AfterImport(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Changes one module as soon as it has been loaded."""

    def __init__(self, change: _Change, amount: float) -> None:
        self._change, self._amount = change, amount

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._change.module:
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
        self._change.apply(module, self._amount)


def _later(owner: type, names: Sequence[str], seconds: float) -> None:
    """Calls of these methods take effect later, in their order."""

    def delayed(method: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            asyncio.get_running_loop().call_later(seconds, method, *arguments)

        return call

    for name in names:
        setattr(owner, name, delayed(getattr(owner, name)))


def _late_demand(module: Any, seconds: float) -> None:
    """The demand that decisions see is as old as that."""
    current, history = module.NeedsTable.demand, deque[tuple[float, Any]]()

    def demand(needs: Any) -> Any:
        now = time.monotonic()
        history.append((now, current(needs)))
        while len(history) > 1 and history[1][0] <= now - seconds:
            history.popleft()
        return history[0][1]

    module.NeedsTable.demand = demand


def _repeated_decisions(module: Any, times: float) -> None:
    compute = module.compute

    def repeated(*arguments: Any) -> Any:
        for _ in range(int(times)):
            compute(*arguments)
        return compute(*arguments)

    module.compute = repeated


def _repeated_acknowledgements(module: Any, times: float) -> None:
    patch = module.KubeClient.patch

    async def repeated(client: Any, path: str, *arguments: Any, **more: Any) -> Any:
        if path.endswith("/status") and "/capacityrequests/" in path:
            for _ in range(int(times)):
                await patch(client, path, *arguments, **more)
        return await patch(client, path, *arguments, **more)

    module.KubeClient.patch = repeated


def _computing(_: Any, threads: float) -> None:
    def compute() -> None:
        while True:
            pass

    for _ in range(int(threads)):
        threading.Thread(target=compute, daemon=True).start()


def _leak(module: Any, times: float) -> None:
    put, lost = module.RequestCache.put, []

    def leaking(*arguments: Any) -> None:
        lost.append(b"x" * int(times * _LEAKED_PER_REQUEST))
        put(*arguments)

    module.RequestCache.put = leaking


_CYCLE = "bigfleet.services.shard.decide.cycle"
_REQUEST_CACHE = "bigfleet.controllers.operator.request_cache"
_CHANGES: Mapping[str, _Change] = {
    "late-pods": _Change(
        "pod-controller",
        "bigfleet.controllers.pod_controller.request_writer",
        lambda module, seconds: _later(module.RequestWriter, ("set_desired", "forget"), seconds),
    ),
    "late-requests": _Change(
        "operator",
        _REQUEST_CACHE,
        lambda module, seconds: _later(module.RequestCache, ("put", "remove"), seconds),
    ),
    "late-demand": _Change("shard", "bigfleet.services.shard.demand.needs", _late_demand),
    "repeated-decisions": _Change(
        "shard", "bigfleet.services.shard.decide.cycle_report", _repeated_decisions
    ),
    "repeated-acknowledgements": _Change(
        "operator", "bigfleet.kube.client", _repeated_acknowledgements
    ),
    "computing": _Change("shard", _CYCLE, _computing),
    "leak": _Change("operator", _REQUEST_CACHE, _leak),
}
