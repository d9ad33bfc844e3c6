"""What tests on real control planes share: the binaries, a run's frame, a cluster to work on."""

from __future__ import annotations

import importlib
import itertools
import os
import uuid
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, settings
from xdist.remote import Producer

from bigfleet.api.install import install
from bigfleet.gc_pauses import no_gc
from bigfleet.kube.client import KubeClient
from controlplane.locate import locate
from controlplane.pins import (
    COMPONENTS,
    OPTIONAL_MODULES,
    PINNED_MODULES,
)
from controlplane.request import Binaries, request_from
from controlplane.resolve import binaries_of
from loaddriver.substrates.base import Cluster
from loaddriver.substrates.runscope import RunScope
from tests.support.fedhpa_fleet import Fleet, fleet
from tests.support.progress import Progress
from tests.support.shared_clusters import SharedClusters
from tests.support.side_by_side import ByGroup, ends_group, longest_first

# The machine may be busy: how long an example, or the making of one, takes is no property of ours.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


# What takes minutes, or an engine of containers: it runs where `-m` asks for it by name.
OPT_IN = ("containers", "failover", "load", "scenarios", "slow", "soak", "truth")

_SHARED_CLUSTERS = pytest.StashKey[SharedClusters]()


def pytest_configure(config: pytest.Config) -> None:
    """Trust no authority of the system's; say how long is left, in the process that reports."""
    if "containers" not in config.getoption("markexpr"):
        # To read them takes each process that imports aiohttp 60 ms of CPU time. Only images are
        # built from what others serve.
        os.environ["SSL_CERT_FILE"] = os.devnull
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(config))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Import the modules of all tests."""
    with no_gc():
        return (yield)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByGroup:
    """How workers share the tests, whatever `--dist` says."""
    config.option.loadscopereorder = False
    return ByGroup(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what has to be asked for; whoever uses the binaries starts a control plane."""
    for item in items:
        if "binaries" in getattr(item, "fixturenames", ()):
            item.add_marker("cluster")
    _must_be_findable([item for item in items if item.get_closest_marker("alone")])
    unasked = {name for name in OPT_IN if name not in config.getoption("markexpr")}
    asked: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        (left_out if marks & unasked else asked).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = asked
    if hasattr(config, "workerinput"):
        longest_first(config, items)


def _must_be_findable(alone: list[pytest.Item]) -> None:
    """`make test` finds the files of tests that run alone by this text, and collects no others."""
    for path in {item.path for item in alone}:
        if "mark.alone" not in path.read_text():
            raise pytest.UsageError(f"{path}: say `pytest.mark.alone` in the file itself")


@pytest.fixture(scope="session")
def binaries() -> Binaries:
    """The real binaries, found or cached; without them the test is skipped."""
    wanted = (*PINNED_MODULES, *OPTIONAL_MODULES.values())
    found = locate(request_from(os.environ), lambda _: None, wanted)
    missing = [name for name in COMPONENTS if name not in found]
    if missing:
        pytest.skip(f"no {', '.join(missing)}: run `make binaries` first")
    return binaries_of(found)


@pytest.fixture(scope="session")
def scipy_stats() -> Any:
    """scipy.stats, imported by workers that use it and not by all that collect: it takes a second
    of CPU time.
    """
    return importlib.import_module("scipy.stats")


@pytest.fixture
def run_id() -> str:
    """An id that no other run has."""
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest_asyncio.fixture
async def scope(run_id: str, tmp_path: Path) -> AsyncIterator[RunScope]:
    """A run's frame with a lock of its own, so that it is no measuring run."""
    scope = RunScope.open(run_id, "test", tmp_path / "logs", tmp_path / "lock")
    yield scope
    await scope.close()


@pytest.fixture(scope="session")
def shared_clusters(
    binaries: Binaries, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[SharedClusters]:
    """Real control planes, by names that nobody else uses."""
    numbers = itertools.count(1)
    shared = SharedClusters(
        lambda: f"shared-{os.getpid()}-{next(numbers)}",
        binaries,
        lambda: tmp_path_factory.mktemp("cluster-logs"),
        dict(os.environ),
    )
    pytestconfig.stash[_SHARED_CLUSTERS] = shared
    try:
        yield shared
    finally:
        shared.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, None, None]:
    """A worker runs the tests of a group, which share control planes, one after the other."""
    yield
    shared = item.config.stash.get(_SHARED_CLUSTERS, None)
    if shared and hasattr(item.config, "workerinput") and ends_group(item, nextitem):
        shared.stop()


@pytest.fixture
def cluster(shared_clusters: SharedClusters) -> Cluster:
    """One real control plane for many tests, with BigFleet's resources in it."""

    async def prepare(started: Mapping[str, Cluster]) -> None:
        async with await KubeClient.from_kubeconfig(started["c"].kubeconfigs["admin"]) as admin:
            await install(admin)

    return shared_clusters.of("c", prepare=prepare)["c"]


@pytest.fixture
def federated_clusters(shared_clusters: SharedClusters) -> dict[str, Cluster]:
    """The federation's own control plane and two members."""
    return shared_clusters.of("host", "east", "west")


@pytest_asyncio.fixture
async def federated(federated_clusters: dict[str, Cluster], tmp_path: Path) -> AsyncIterator[Fleet]:
    """The fleet for one test, its members joined anew."""
    async with fleet(federated_clusters, tmp_path) as made:
        yield made


@pytest.fixture
def kubeconfig(cluster: Cluster) -> dict[str, Path]:
    """The shared cluster's kubeconfig files by role."""
    return dict(cluster.kubeconfigs)
