"""What goes into each image: data, which a test holds against what the code really imports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class PythonRecipe:
    """An image that runs Python: folders of this repository, the packages they import, and the
    binaries that they start.
    """

    folders: tuple[str, ...]
    packages: tuple[str, ...]
    binaries: tuple[str, ...] = ()


_BIGFLEET_PACKAGES = (
    "aiohttp",
    "cryptography",
    "grpcio",
    "kubernetes",
    "msgspec",
    "numba",
    "numpy",
    "prometheus-client",
    "protobuf",
    "PyYAML",
)
PYTHON_IMAGES: Mapping[str, PythonRecipe] = MappingProxyType(
    {
        "bigfleet": PythonRecipe(
            ("bigfleet",),
            _BIGFLEET_PACKAGES,
            binaries=("etcd",),  # a coordinator starts one beside itself
        ),
        "loaddriver": PythonRecipe(
            ("bigfleet", "controlplane", "kind", "loaddriver", "profiles"),
            (
                *_BIGFLEET_PACKAGES,
                "certifi",
                "gevent",
                "jinja2",
                "locust",
                "markupsafe",
                "psutil",
                "rich",
            ),
            binaries=("kwok",),  # plays the Nodes of a run in a cluster that exists
        ),
    }
)
# Binaries of the control plane that run as containers too, each in an image of its own.
BINARY_IMAGES = ("kwok", "etcd")
# Of the same form, for runs that need them.
OPTIONAL_IMAGES = ("metrics-server", "karpenter")
