"""Builds a module's binaries from source with the machine's Go compiler."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from controlplane.command import run_logged
from controlplane.compiler import Compiler, find_compiler
from controlplane.errors import BinaryError
from controlplane.module_files import module_files
from controlplane.pins import CHANGES, MODULES_DIRECTORY, Module, is_pinned
from controlplane.request import BinaryRequest

_GIBIBYTE = 1 << 30


def _existing(path: Path) -> Path:
    """The nearest existing ancestor: the first use creates a cache."""
    while not path.exists():
        path = path.parent
    return path


def device_of(path: Path) -> int:
    """The device of `path`'s file system; `path` need not exist yet."""
    return os.stat(_existing(path)).st_dev


def free_bytes_at(path: Path) -> int:
    """Free bytes of `path`'s file system."""
    return shutil.disk_usage(_existing(path)).free


def require_space(
    purpose: str,
    needs_bytes: Mapping[Path, int],
    device: Callable[[Path], int] = device_of,
    free_bytes: Callable[[Path], int] = free_bytes_at,
) -> None:
    """Raise BinaryError if a file system has less free space than its directories need.

    needs_bytes is keyed by directory; directories on one file system share its free space.
    """
    by_device: dict[int, list[Path]] = {}
    for directory in needs_bytes:
        by_device.setdefault(device(directory), []).append(directory)
    for directories in by_device.values():
        needed = sum(needs_bytes[directory] for directory in directories)
        free = free_bytes(directories[0])
        if free < needed:
            raise BinaryError(
                f"not enough disk space for {purpose}: it needs {needed / _GIBIBYTE:.1f} GiB, and "
                f"the file system of {_listed(directories)} has {free / _GIBIBYTE:.1f} GiB free: "
                "free some space, or give a directory that has the binaries"
            )


def _listed(directories: list[Path]) -> str:
    return " and ".join(str(directory) for directory in directories)


_STAGED = re.compile(r"^\s*(k8s\.io/\S+) => \./staging/src/\1$", re.MULTILINE)
_GO_LINE = re.compile(r"^go (\d+\.\d+(?:\.\d+)?)$", re.MULTILINE)


def staging_modules(kubernetes_go_mod: str) -> tuple[str, ...]:
    """The staging modules of a Kubernetes release, from its go.mod.

    They differ between releases. Raises BinaryError if there are none.
    """
    modules = tuple(_STAGED.findall(kubernetes_go_mod))
    if not modules:
        raise BinaryError(
            "this Kubernetes release's go.mod replaces no module by ./staging/src/...: "
            "it cannot be built here; give a directory that has its binaries"
        )
    return modules


def go_release_of(go_mod: str) -> str:
    """The Go release that a go.mod requires."""
    match = _GO_LINE.search(go_mod)
    if match is None:
        raise BinaryError("this Kubernetes release's go.mod has no go line: it cannot be built")
    return match[1]


def staging_version(kubernetes_version: str) -> str:
    """The version v0.X.Y under which staging modules of Kubernetes 1.X.Y are published."""
    return "v0." + kubernetes_version.removeprefix("1.")


def generated_go_mod(module: Module, go_release: str, staging: Iterable[str]) -> str:
    """A go.mod that builds the module's components at its version, before `go mod tidy`."""
    version = staging_version(module.version)
    tools = "\n".join(f"\t{package}" for package in module.packages.values())
    replaced = "\n".join(f"\t{name} => {name} {version}" for name in staging)
    return (
        f"module bigfleet/controlplane/{module.name}\n\n"
        f"go {go_release}\n\n"
        f"tool (\n{tools}\n)\n\n"
        f"require k8s.io/kubernetes v{module.version}\n\n"
        f"replace (\n{replaced}\n)\n"
    )


@dataclass(frozen=True)
class _Build:
    """One build of some components of a module."""

    module: Module
    components: tuple[str, ...]
    request: BinaryRequest
    log: Path
    progress: Callable[[str], None]

    @property
    def title(self) -> str:
        return f"building {', '.join(self.components)} {self.module.version} from source"

    def report_elapsed(self, seconds: float) -> None:
        usual = f"usually {self.module.usual_build_time} on 2 cores"
        self.progress(f"{self.title}: {seconds:.0f} s elapsed, {usual}")

    def go(self, compiler: Compiler, directory: Path, *arguments: str, **changed: str) -> None:
        self.run([compiler.path, *arguments], directory, {**compiler.environment, **changed})

    def run(self, command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> None:
        run_logged(
            self.title,
            command,
            directory,
            environment,
            self.log,
            self.report_elapsed,
            self.request.progress_interval_seconds,
        )


def build(
    module: Module,
    components: tuple[str, ...],
    request: BinaryRequest,
    staging: Path,
    progress: Callable[[str], None],
) -> dict[str, Path]:
    """Build the components in the staging directory; return their paths by name.

    Raises BinaryError: no compiler or an old one, not enough disk space, or a failed command.
    """
    logs = request.directory / "logs"
    logs.mkdir(exist_ok=True)
    log = logs / f"build-{module.name}-{module.version}.log"
    log.write_text("", encoding="utf-8")
    job = _Build(module, components, request, log, progress)
    compiler = find_compiler(request.environment, request.platform, job.title)
    require_space(job.title, _needs(module, compiler, request))
    progress(f"{job.title}: usually {module.usual_build_time} on 2 cores, log: {log}")
    source = _source_directory(job, compiler, staging)
    outputs = {name: staging / "bin" / name for name in components}
    job.go(compiler, source, *_build_arguments(module, outputs))
    return outputs


def _needs(module: Module, compiler: Compiler, request: BinaryRequest) -> dict[Path, int]:
    needs: dict[Path, int] = {}
    for directory, size in (
        (compiler.module_cache, module.space.module_cache_bytes),
        (compiler.build_cache, module.space.build_cache_bytes),
        (compiler.scratch, module.space.scratch_bytes),
        (request.directory, module.space.output_bytes),
    ):
        needs[directory] = needs.get(directory, 0) + size
    return needs


def _build_arguments(module: Module, outputs: dict[str, Path]) -> list[str]:
    """The arguments of `go build`.

    Several packages are written to a directory under their own names. A single one gets an
    explicit name, since the last element of its path may not be the binary's (etcd's is "server").
    """
    first = next(iter(outputs.values()))
    output = str(first) if len(outputs) == 1 else f"{first.parent}/"
    flags = ["-trimpath", f"-ldflags={module.linker_flags}", "-o", output]
    return ["build", *flags, *(module.packages[name] for name in outputs)]


def _source_directory(job: _Build, compiler: Compiler, staging: Path) -> Path:
    if is_pinned(job.module):
        pinned = MODULES_DIRECTORY / job.module.name
        changed = job.module.changed
        return pinned if changed is None else _changed(job, compiler, pinned, changed, staging)
    directory = staging / "module"
    directory.mkdir()
    job.progress(
        f"Kubernetes {job.module.version} is not the pinned release: downloading its source"
    )
    released = _released_go_mod(job, compiler)
    text = generated_go_mod(job.module, go_release_of(released), staging_modules(released))
    (directory / "go.mod").write_text(text, encoding="utf-8")
    job.go(compiler, directory, "mod", "tidy", GOFLAGS="-mod=mod")
    return directory


def _changed(job: _Build, compiler: Compiler, pinned: Path, name: str, staging: Path) -> Path:
    """A copy of the `pinned` module that uses the changed source of Go module `name`."""
    git = shutil.which("git", path=job.request.environment.get("PATH", ""))
    if git is None:
        raise BinaryError(f"{job.title} needs git, which is not on PATH: install it")
    directory = staging / job.module.name
    shutil.copytree(pinned, directory)
    source = directory / "source"
    # Files without their modes: those in Go's module cache can only be read.
    shutil.copytree(
        module_files(job.module, name, job.request), source, copy_function=shutil.copyfile
    )
    for folder, _, _ in os.walk(source):
        os.chmod(folder, 0o755)
    # A cache directory within somebody's repository is none of git's business.
    environment = {**job.request.environment, "GIT_CEILING_DIRECTORIES": str(directory)}
    job.run([git, "apply", str(directory / CHANGES)], source, environment)
    job.go(compiler, directory, "mod", "edit", f"-replace={name}=./source")
    return directory


def _released_go_mod(job: _Build, compiler: Compiler) -> str:
    """The go.mod of the requested release, downloaded and verified by Go."""
    job.go(compiler, Path("/"), "mod", "download", f"k8s.io/kubernetes@v{job.module.version}")
    fetched = compiler.module_cache / "cache" / "download" / "k8s.io" / "kubernetes" / "@v"
    return (fetched / f"v{job.module.version}.mod").read_text(encoding="utf-8")
