"""python -m kind: creates kind clusters, and builds their images."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from controlplane.errors import BinaryError, BinaryUsageError
from controlplane.request import BinaryRequest, request_from
from kind.cluster import clusters, create, delete, export_logs
from kind.config import ONE_NODE, SEVERAL_NODES, cluster_config
from kind.engine import find_engine
from kind.errors import KindError, KindUsageError
from kind.images.recipe import OPTIONAL_IMAGES
from kind.images.resolve import resolve_image, resolve_images
from kind.nodeimage.image import make_node_image
from kind.setup import Setup, find_tools, prepare

USAGE_ERROR = 2
INFRASTRUCTURE_FAILED = 6
INTERRUPTED = 130

_DESCRIPTION = """\
commands:
  up          create a kind cluster, or print its kubeconfig
  down        delete it; after the last one, restore the host's settings
  node-image  build a node image from pinned Go modules and Debian packages,
              for hosts without a registry (needs root)
  images      build changed images of bigfleet and its harness
"""
_EPILOG = """\
environment:
  KIND_EXPERIMENTAL_PROVIDER  docker or podman (default: the first that responds)
  KUBERNETES_VERSION          as --kubernetes-version
  XDG_CACHE_HOME              parent of the cache directory (default: ~/.cache)

exit codes: 0 success, 2 an invalid value, 6 this machine cannot do it (the
message states the cause), 130 interrupted
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    options = _parser().parse_args(arguments)
    try:
        request = request_from(
            os.environ, cache=options.cache, kubernetes_version=options.kubernetes_version
        )
        _COMMANDS[options.command](request, options)
    except (BinaryUsageError, KindUsageError) as error:
        _say(f"error: {error}")
        return USAGE_ERROR
    except (BinaryError, KindError, OSError) as error:
        _say(f"error: {error}")
        return INFRASTRUCTURE_FAILED
    except KeyboardInterrupt:
        _say("interrupted; `python -m kind down` deletes what was started")
        return INTERRUPTED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m kind",
        usage="%(prog)s {up,down,node-image,images} [options]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=tuple(_COMMANDS), help=argparse.SUPPRESS)
    parser.add_argument("--name", default="bigfleet", help="the cluster's name (bigfleet)")
    parser.add_argument(
        "--nodes", choices=tuple(_BASES), default="one", help="number of nodes for up (one)"
    )
    parser.add_argument(
        "--also",
        action="append",
        default=[],
        choices=OPTIONAL_IMAGES,
        help="an image for images that only some profiles need",
    )
    parser.add_argument("--cache", metavar="DIR", help="default: ~/.cache/bigfleet")
    parser.add_argument(
        "--kubernetes-version", metavar="1.X.Y", help="another Kubernetes than the pinned one"
    )
    return parser


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _up(request: BinaryRequest, options: argparse.Namespace) -> None:
    setup = prepare(request, _say)
    kubeconfig = _kubeconfig(request, options.name)
    if options.name not in clusters(setup.tools):
        _make(setup, options, kubeconfig)
    print(f"kind-up: {options.name} is up; export KUBECONFIG={kubeconfig}")


def _make(setup: Setup, options: argparse.Namespace, kubeconfig: Path) -> None:
    """Create a cluster; if it fails, keep only its logs."""
    config = cluster_config(setup.node_image, _BASES[options.nodes])
    log = kubeconfig.with_suffix(".log")
    try:
        create(setup, options.name, config, kubeconfig, log, _say)
    except KindError:
        bundle = kubeconfig.with_suffix(".failed")
        export_logs(setup.tools, options.name, bundle)
        _say(f"logs of its nodes: {bundle}")
        delete(setup.tools, options.name, kubeconfig)
        raise


def _down(request: BinaryRequest, options: argparse.Namespace) -> None:
    tools = find_tools(request, _say)
    was_up = options.name in clusters(tools)
    restored = delete(tools, options.name, _kubeconfig(request, options.name))
    ended = f"{options.name} is deleted" if was_up else f"cluster {options.name} does not exist"
    restore_host = f"; restored on this host: {', '.join(restored)}" if restored else ""
    print(f"kind-down: {ended}{restore_host}")


def _kubeconfig(request: BinaryRequest, name: str) -> Path:
    return request.cache_directory / "kind" / f"{name}.kubeconfig"


def _node_image(request: BinaryRequest, _: argparse.Namespace) -> None:
    engine = find_engine(request.environment, request.cache_directory)
    image = make_node_image(request, engine, _say)
    print(f"kind-node-image: {image.reference} is in {engine.name}'s store")


def _images(request: BinaryRequest, options: argparse.Namespace) -> None:
    engine = find_engine(request.environment, request.cache_directory)
    more = [resolve_image(name, request, engine, _say) for name in options.also]
    images = (*resolve_images(request, engine, _say).all, *more)
    for image in images:
        megabytes = image.archive.stat().st_size / 1e6
        print(f"{image.reference:<36} {megabytes:>5.0f} MB  {image.archive}")
    print(f"images: {len(images)} are current, in {engine.name}'s store and as archives")


_BASES = {"one": ONE_NODE, "several": SEVERAL_NODES}
_COMMANDS: dict[str, Callable[[BinaryRequest, argparse.Namespace], None]] = {
    "up": _up,
    "down": _down,
    "node-image": _node_image,
    "images": _images,
}


if __name__ == "__main__":
    sys.exit(main())
