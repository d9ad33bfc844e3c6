"""Imports point down only, and the harness sees no more of BigFleet than an outsider would."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# A module may import its own level and those above it in this list.
LAYERS: list[set[str]] = [
    {"bigfleet.model"},
    {"bigfleet.kube"},
    {
        "bigfleet.api",
        "bigfleet.observe",
        "bigfleet.tasks",
        "bigfleet.gc_pauses",
        "bigfleet.jit",
        "bigfleet.flags",
    },
    {"bigfleet.engine"},
    {"bigfleet.ports"},
    {"bigfleet.adapters"},
    {"bigfleet.services", "bigfleet.controllers", "bigfleet.fedhpa"},
    {
        "bigfleet.simulation",
        "bigfleet.conformance",
        "bigfleet.audit",
        "bigfleet.commands",
        "bigfleet.bench",
    },
    {"bigfleet.__main__"},
]
# The parts of a package, top to bottom: a part may import those below it. Parts of one set may
# import each other; a part that is not listed fails the test.
ORDER_INSIDE: dict[str, list[set[str]]] = {
    "loaddriver": [
        {"__main__"},
        {"commands"},
        {"doctor", "history"},
        {"compare", "kindrun", "wire"},
        {"run"},
        {"report"},
        {"judge"},
        {"anchors", "fedhpa", "karpenter"},
        {"record"},
        {"load", "sizing"},
        {"plan"},
        {"profile"},
        {"substrates"},
        {"apportion", "distributions", "errors", "inject", "process_counters", "schedstat"},
    ],
    "loaddriver.compare": [
        {"outputs", "stored", "fact_runner"},
        {"junit", "markdown", "page"},
        {"session", "runner", "request", "pool", "facts"},
        {"injection"},
        {"state", "evidence", "systems"},
        {"evaluate"},
        {"attribution", "exact", "wording"},
        {"machine_speed"},
        {"sequential"},
        {"measures", "comparison"},
    ],
    "loaddriver.profile": [
        {"loading"},
        {"checks"},
        {"federation_checks", "fleet_checks", "shape_checks"},
        {"settings"},
        {"bigfleet", "federation", "fleet", "gates", "load"},
        {"catalog_checks", "overrides", "pod_template"},
        {"catalog"},
        {"instance_types"},
        {"archetypes"},
        {"decoding", "yaml_reader"},
        {"hints"},
    ],
    "bigfleet.engine": [
        {"precompile"},
        {"decide"},
        {"explain", "checks"},
        {"phases"},
        {"placement"},
        {"state"},
        {"fit"},
        {"kernels"},
        {"snapshot", "columns", "need_columns", "folded_needs", "decision", "cycle_memory"},
    ],
    "bigfleet.services.shard": [
        {"role"},
        {"assembly"},
        {"admin"},
        {"coordination"},
        {"inspect"},
        {"replay"},
        {"decide"},
        {"execute"},
        {"sessions"},
        {"demand"},
        {"fleet"},
        {"config"},
        {"records"},
    ],
}
HARNESS_MAY_IMPORT = (
    "bigfleet.api",
    "bigfleet.kube",
    "bigfleet.model",
    "controlplane",
    "kind",
    "loaddriver",
)
OURS = ("bigfleet", "loaddriver", "controlplane", "kind")
PURE = ("bigfleet.model", "bigfleet.engine", "bigfleet.fedhpa.shares", "bigfleet.audit.compare")
IMPURE_MODULES = {
    "asyncio", "aiohttp", "grpc", "kubernetes", "logging", "os", "pathlib", "random", "socket",
    "sqlite3", "subprocess", "threading", "time", "datetime", "uuid", "secrets",
}  # fmt: skip


def modules() -> Iterator[tuple[str, Path]]:
    for package in OURS:
        for path in sorted((ROOT / package).rglob("*.py")):
            if not path.stem.endswith(("_pb2", "_pb2_grpc")):
                parts = path.relative_to(ROOT).with_suffix("").parts
                yield ".".join(p for p in parts if p != "__init__"), path


@cache
def imports(path: Path) -> tuple[str, ...]:
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide which layer is meant"
            found.append(node.module or "")
            found += (f"{node.module}.{alias.name}" for alias in node.names)
    return tuple(found)


def layer(module: str) -> int | None:
    for index, members in enumerate(LAYERS):
        if any(module == m or module.startswith(f"{m}.") for m in members):
            return index
    return None


@pytest.mark.parametrize(
    ("module", "path"), list(modules()), ids=lambda v: v if isinstance(v, str) else ""
)
def test_imports_point_down(module: str, path: Path) -> None:
    """No module imports from a layer above its own."""
    own = layer(module)
    if own is None:
        return
    above = sorted(i for i in imports(path) if (other := layer(i)) is not None and other > own)
    assert not above, f"{module} is in layer {own} and imports upwards: {above}"


def part_of(package: str, module: str) -> str:
    """The part of `package` that holds `module`; "" for the package itself and for others."""
    inside = module.removeprefix(f"{package}.") if module.startswith(f"{package}.") else ""
    return inside.partition(".")[0]


@pytest.mark.parametrize(
    ("package", "module", "path"),
    [(k, m, p) for k in ORDER_INSIDE for m, p in modules() if m.startswith(f"{k}.")],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_imports_inside_a_package_point_down(package: str, module: str, path: Path) -> None:
    """Inside a package with an order, no part imports one above its own, so none form a circle."""
    ranks = {p: rank for rank, parts in enumerate(ORDER_INSIDE[package]) for p in parts}

    def part(name: str) -> str:
        return name.removeprefix(f"{package}.").split(".")[0]

    inside = {part(i) for i in imports(path) if i.startswith(f"{package}.")} & ranks.keys()
    assert part(module) in ranks, f"{part(module)} has no place in the order of {package}"
    above = sorted(other for other in inside if ranks[other] < ranks[part(module)])
    assert not above, f"{module} imports upwards: {above}"


@pytest.mark.parametrize(
    ("module", "path"),
    [(m, p) for m, p in modules() if m.startswith("bigfleet.services.")],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_services_know_each_other_by_the_wire_alone(module: str, path: Path) -> None:
    """A shard must decide without its coordinator; so it cannot contain any of it."""
    own = ".".join(module.split(".")[:3])
    others = {i for i in imports(path) if i.startswith("bigfleet.services.")}
    assert all(i == own or i.startswith(f"{own}.") for i in others), f"{module} imports {others}"


@pytest.mark.parametrize(
    ("module", "path"), [(m, p) for m, p in modules() if m.startswith("bigfleet.conformance")]
)
def test_the_conformance_suite_knows_a_provider_by_the_wire_alone(module: str, path: Path) -> None:
    """So it holds every provider, BigFleet's own too, to the contract and to nothing else."""
    services = {i for i in imports(path) if i.startswith("bigfleet.services")}
    assert not services, f"{module} imports {sorted(services)}"


@pytest.mark.parametrize("module", [m for m, _ in modules()])
def test_every_bigfleet_module_has_a_layer(module: str) -> None:
    """A new top-level part of BigFleet is given its place before it is used."""
    assert not module.startswith("bigfleet.") or layer(module) is not None


@pytest.mark.parametrize(
    ("module", "path"), list(modules()), ids=lambda v: v if isinstance(v, str) else ""
)
def test_harness_knows_only_the_contract(module: str, path: Path) -> None:
    """The harness imports BigFleet's contract and model, and the binaries know neither."""
    ours = {i for i in imports(path) if i.split(".")[0] in OURS}
    if module.startswith("loaddriver"):
        allowed = {i for i in ours if i.startswith(HARNESS_MAY_IMPORT)} | {"bigfleet"}
        assert ours <= allowed, f"{module} imports {sorted(ours - allowed)}"
    if module.startswith("controlplane"):
        assert all(i.startswith("controlplane") for i in ours)
    if module.startswith("kind"):
        assert all(i.startswith(("kind", "controlplane")) for i in ours)
    if module.startswith("bigfleet"):
        assert all(i.startswith("bigfleet") for i in ours), f"{module} imports the harness"


@pytest.mark.parametrize(
    ("module", "path"), list(modules()), ids=lambda v: v if isinstance(v, str) else ""
)
def test_model_and_engine_are_pure(module: str, path: Path) -> None:
    """Decisions get clock, randomness and I/O from outside: those packages import none."""
    if module.startswith(PURE):
        impure = {i.split(".")[0] for i in imports(path)} & IMPURE_MODULES
        assert not impure, f"{module} imports {sorted(impure)}"


@pytest.mark.parametrize(
    ("module", "path"), list(modules()), ids=lambda v: v if isinstance(v, str) else ""
)
def test_only_entry_points_read_flags_and_environment(module: str, path: Path) -> None:
    """argparse and os.environ appear in entry points alone, so that settings have one source."""
    entry = module.endswith(("__main__", "locustfile")) or ".commands." in module
    text = path.read_text()
    reads = "argparse" in text or "os.environ[" in text or "getenv" in text or "environ.get" in text
    assert entry or not reads, f"{module} reads flags or the environment"
