"""The images that a cluster is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from controlplane.pins import OPTIONAL_MODULES, wanted_modules
from controlplane.request import BinaryRequest
from controlplane.resolve import obtain
from kind.engine import Engine
from kind.errors import KindError
from kind.images.base import SCRATCH
from kind.images.builder import Builder, Image
from kind.images.context import BinaryContext, PythonContext
from kind.images.recipe import BINARY_IMAGES, OPTIONAL_IMAGES, PYTHON_IMAGES

_CHECKOUT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Images:
    """All that runs of ours start in a cluster."""

    bigfleet: Image
    loaddriver: Image
    kwok: Image
    etcd: Image

    @property
    def all(self) -> tuple[Image, ...]:
        """In the order in which they are declared."""
        return (self.bigfleet, self.loaddriver, self.kwok, self.etcd)


def resolve_images(
    request: BinaryRequest, engine: Engine, progress: Callable[[str], None]
) -> Images:
    """Every image, as `resolve_image` gives it."""
    names = (*PYTHON_IMAGES, *BINARY_IMAGES)
    return Images(**{name: resolve_image(name, request, engine, progress) for name in names})


def resolve_image(
    name: str, request: BinaryRequest, engine: Engine, progress: Callable[[str], None]
) -> Image:
    """One image, by the name of its recipe, in the engine and as an archive; built only if its
    inputs changed.

    Raises KindError or controlplane's errors with what this machine lacks.
    """
    if not (_CHECKOUT / "Containerfile").is_file():
        raise KindError(f"images are built from a checkout of this project; {_CHECKOUT} is none")
    work = request.cache_directory / "images"
    work.mkdir(parents=True, exist_ok=True)
    builder = Builder(_CHECKOUT, work, engine, progress)
    if name in (*BINARY_IMAGES, *OPTIONAL_IMAGES):
        return builder.resolve(name, BinaryContext(_binary(name, request, progress)), SCRATCH)
    recipe = PYTHON_IMAGES[name]
    context = PythonContext(
        recipe,
        _CHECKOUT,
        work,
        request.platform.architecture,
        request.environment,
        [_binary(binary, request, progress) for binary in recipe.binaries],
    )
    return builder.resolve(name, context)


def _binary(name: str, request: BinaryRequest, progress: Callable[[str], None]) -> Path:
    known = (*wanted_modules(None), *OPTIONAL_MODULES.values())
    modules = [module for module in known if module.name == name]
    return obtain(modules, request, progress)[name].path
