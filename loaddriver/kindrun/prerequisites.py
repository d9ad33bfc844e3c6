"""What a run on kind needs of this machine: tools, node image, images of pods, helm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from controlplane import resolve
from controlplane.errors import BinaryUsageError
from controlplane.pins import HELM, OPTIONAL_MODULES
from controlplane.request import BinaryRequest
from kind.errors import KindError, KindUsageError
from kind.images.builder import Image
from kind.images.resolve import resolve_image
from kind.setup import Setup, prepare
from loaddriver.substrates.base import SubstrateError

IMAGES = ("bigfleet", "loaddriver", "kwok")
METRICS_SERVER_IMAGE = "metrics-server"


@dataclass(frozen=True)
class Prerequisites:
    """A working engine, kind, the node image, the images of pods by name, and helm."""

    setup: Setup
    images: Mapping[str, Image]
    helm: Path


def obtain(
    request: BinaryRequest, progress: Callable[[str], None], *, resource_metrics: bool = False
) -> Prerequisites:
    """Provide all prerequisites; a build blocks for minutes.

    Raises SubstrateError if a prerequisite is missing, BinaryUsageError for an invalid value.
    """
    try:
        setup = prepare(request, progress)
        engine = setup.tools.engine
        names = (*IMAGES, METRICS_SERVER_IMAGE) if resource_metrics else IMAGES
        images = {name: resolve_image(name, request, engine, progress) for name in names}
        helm = resolve.obtain([OPTIONAL_MODULES[HELM]], request, progress)[HELM].path
        return Prerequisites(setup, images, helm)
    except KindError as error:
        raise SubstrateError(str(error)) from error
    except KindUsageError as error:
        raise BinaryUsageError(str(error)) from error
