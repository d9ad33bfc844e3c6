"""Builds a module's binaries from source with the machine's Go compiler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from controlplane.command import run_logged
from controlplane.compiler import Compiler, find_compiler
from controlplane.pins import MODULES_DIRECTORY, Module, is_pinned
from controlplane.request import BinaryRequest
from controlplane.source import generated_go_mod, go_release_of, staging_modules
from controlplane.space import require_space


@dataclass(frozen=True)
class _Build:
    """One build of some of a module's components."""

    module: Module
    components: tuple[str, ...]
    request: BinaryRequest
    log: Path
    progress: Callable[[str], None]

    @property
    def title(self) -> str:
        return f"building {', '.join(self.components)} {self.module.version} from source"

    def say_elapsed(self, seconds: float) -> None:
        usual = f"about {self.module.usual_build_time} on 2 cores"
        self.progress(f"{self.title}: {seconds:.0f} s so far, {usual}")

    def run(self, compiler: Compiler, directory: Path, *arguments: str, **changed: str) -> None:
        run_logged(
            self.title,
            [compiler.path, *arguments],
            directory,
            {**compiler.environment, **changed},
            self.log,
            self.say_elapsed,
            self.request.progress_interval_seconds,
        )


def build(
    module: Module,
    components: tuple[str, ...],
    request: BinaryRequest,
    staging: Path,
    progress: Callable[[str], None],
) -> dict[str, Path]:
    """Builds the components into the staging folder; their paths by name.

    Raises BinaryError: no or an old compiler, too little space, or a failed command.
    """
    logs = request.directory / "logs"
    logs.mkdir(exist_ok=True)
    log = logs / f"build-{module.name}-{module.version}.log"
    log.write_text("", encoding="utf-8")
    job = _Build(module, components, request, log, progress)
    compiler = find_compiler(request.environment, request.platform, job.title)
    require_space(job.title, _needs(module, compiler, request))
    progress(f"{job.title}: about {module.usual_build_time} on 2 cores the first time, log: {log}")
    source = _source_directory(job, compiler, staging)
    outputs = {name: staging / "bin" / name for name in components}
    job.run(compiler, source, *_build_arguments(module, outputs))
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
    """Several packages go into a folder under their own names; a single one is named by us,
    because the last part of its path need not be the binary's name (etcd's is "server").
    """
    first = next(iter(outputs.values()))
    output = str(first) if len(outputs) == 1 else f"{first.parent}/"
    flags = ["-trimpath", f"-ldflags={module.linker_flags}", "-o", output]
    return ["build", *flags, *(module.packages[name] for name in outputs)]


def _source_directory(job: _Build, compiler: Compiler, staging: Path) -> Path:
    if is_pinned(job.module):
        return MODULES_DIRECTORY / job.module.name
    directory = staging / "module"
    directory.mkdir()
    job.progress(f"Kubernetes {job.module.version} is not the pinned release: fetching its source")
    released = _released_go_mod(job, compiler)
    text = generated_go_mod(job.module, go_release_of(released), staging_modules(released))
    (directory / "go.mod").write_text(text, encoding="utf-8")
    job.run(compiler, directory, "mod", "tidy", GOFLAGS="-mod=mod")
    return directory


def _released_go_mod(job: _Build, compiler: Compiler) -> str:
    """The go.mod of the asked release, as Go fetched and verified it."""
    job.run(compiler, Path("/"), "mod", "download", f"k8s.io/kubernetes@v{job.module.version}")
    fetched = compiler.module_cache / "cache" / "download" / "k8s.io" / "kubernetes" / "@v"
    return (fetched / f"v{job.module.version}.mod").read_text(encoding="utf-8")
