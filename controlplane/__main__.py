"""python -m controlplane: downloads or builds the pinned binaries, or lists their paths."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from controlplane.checksums import CHECKSUMS_FILE, add_checksums, fetch_published_sums
from controlplane.errors import BinaryError, BinaryUsageError
from controlplane.locate import LocatedBinary, locate
from controlplane.pins import (
    KIND_MODULE,
    OPTIONAL_MODULES,
    wanted_modules,
    wanted_node_modules,
)
from controlplane.request import BinaryRequest, request_from
from controlplane.resolve import resolve

USAGE_ERROR = 2
INFRASTRUCTURE_FAILED = 6
INTERRUPTED = 130

_DESCRIPTION = """\
Provides the control plane's binaries: kube-apiserver,
kube-controller-manager, kube-scheduler, etcd and kwok, each in the version
this project pins.

commands:
  get    print their paths; a missing binary is downloaded from its project's
         releases and compared with its pinned checksum, or else with the one
         published beside it. Without a checksum or an answer it is built from
         source with Go (8 to 10 min for all on 2 cores).
         A published checksum proves integrity, not authenticity: use --build
         to trust only Go's module checksums.
  where  print their paths; install nothing (exit code 6 if any is missing)
  pin    add the checksums that the release hosts publish to checksums.json
         (for maintainers: review the diff, then commit it)
"""
_EPILOG = """\
environment:
  BIGFLEET_BINARIES   as --binaries
  KUBEBUILDER_ASSETS  a second directory to look in, after --binaries
  KUBERNETES_VERSION  as --kubernetes-version
  XDG_CACHE_HOME      parent of the cache directory (default: ~/.cache)

exit codes: 0 success, 2 an invalid value, 6 this machine cannot provide a
binary (the message states the cause), 130 interrupted
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    options = _parser().parse_args(arguments)
    try:
        request = request_from(
            os.environ,
            binaries=options.binaries,
            cache=options.cache,
            kubernetes_version=options.kubernetes_version,
            from_source=options.build,
        )
        return _COMMANDS[options.command](request, options.also)
    except BinaryUsageError as error:
        _say(f"error: {error}")
        return USAGE_ERROR
    except BinaryError as error:
        _say(f"error: {error}")
        return INFRASTRUCTURE_FAILED
    except KeyboardInterrupt:
        _say("interrupted; the cache holds no partial binary")
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m controlplane",
        usage="%(prog)s [get|where|pin] [options]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "command", nargs="?", choices=tuple(_COMMANDS), default="get", help="default: get"
    )
    parser.add_argument("--binaries", metavar="DIR", help="search this directory first")
    parser.add_argument("--cache", metavar="DIR", help="default: ~/.cache/bigfleet")
    parser.add_argument(
        "--kubernetes-version",
        metavar="1.X.Y",
        help="Kubernetes release to use instead of the pinned one",
    )
    parser.add_argument(
        "--also",
        action="append",
        default=[],
        choices=tuple(OPTIONAL_MODULES),
        help="an optional component, for profiles that need it",
    )
    parser.add_argument(
        "--build", action="store_true", help="build from source; download no release"
    )
    return parser


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _get(request: BinaryRequest, also: Sequence[str]) -> int:
    binaries = resolve(request, _say, also)
    _print_table(
        {
            name: LocatedBinary(path, binaries.versions[name], binaries.origin[name])
            for name, path in binaries.paths.items()
        }
    )
    return 0


def _where(request: BinaryRequest, also: Sequence[str]) -> int:
    wanted = wanted_modules(request.kubernetes_version)
    modules = (*wanted, *(OPTIONAL_MODULES[name] for name in also))
    found = locate(request, _say, modules)
    _print_table(found)
    missing = [
        f"{name} {module.version}"
        for module in modules
        for name in module.components
        if name not in found
    ]
    if missing:
        _say(f"missing: {', '.join(missing)}; run `python -m controlplane get`")
    return INFRASTRUCTURE_FAILED if missing else 0


def _pin(request: BinaryRequest, _: Sequence[str]) -> int:
    version = request.kubernetes_version
    pinned = (*wanted_modules(version), *OPTIONAL_MODULES.values())
    modules = (*pinned, *wanted_node_modules(version), KIND_MODULE)
    sums = fetch_published_sums(modules, request.release_base_urls, _say)
    add_checksums(sums)
    _say(f"pinned {len(sums)} checksums in {CHECKSUMS_FILE}")
    return 0


def _print_table(found: dict[str, LocatedBinary]) -> None:
    width = max((len(here.origin) for here in found.values()), default=0)
    for name, here in found.items():
        print(f"{name:<24} {here.version:<8} {here.origin:<{width}} {here.path}")


_COMMANDS = {"get": _get, "where": _where, "pin": _pin}


if __name__ == "__main__":
    sys.exit(main())
