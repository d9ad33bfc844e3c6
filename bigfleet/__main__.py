"""`bigfleet ROLE ...` runs one role until it is stopped, or one command.

A role's modules are imported only when it is chosen, so that a process does not load the others'
libraries.

Exit code 0 after SIGTERM or SIGINT, 2 for invalid flags or input, 1 after a failure.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from bigfleet.api.auth import handshakes
from bigfleet.commands import audit, certs, conformance, fedhpa, fleet, replay, roles, why
from bigfleet.commands.config_flags import LazyParser
from bigfleet.gc_pauses import no_gc
from bigfleet.model.errors import BigFleetError, InvalidInput
from bigfleet.observe import log, native_log


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what `arguments` name; return the process's exit code."""
    # gRPC reads this when it is first imported, which parsing a role's flags does. Only TLS 1.3
    # ciphers remain: the TLS 1.2 cipher named here needs a pre-shared key, which nobody has.
    os.environ.setdefault("GRPC_SSL_CIPHER_SUITES", "ECDHE-PSK-CHACHA20-POLY1305")
    with no_gc():
        flags = _parser().parse_args(arguments)
    if getattr(flags, "identity", None):
        native_log.redirect_stderr_to(handshakes.record_handshake_failure)
    log.to_stderr(flags.role)
    try:
        asyncio.run(_until_signalled(flags.build(flags)))
    except InvalidInput as error:
        print(f"bigfleet {flags.role}: {error}", file=sys.stderr)
        return 2
    except (BigFleetError, OSError) as error:
        print(f"bigfleet {flags.role}: {error}", file=sys.stderr)
        return 1
    return 0


async def _until_signalled(role: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await role(stop)


def _parser() -> LazyParser:
    parser = LazyParser(
        prog="bigfleet", description="Autoscaler for fleets of Kubernetes clusters."
    )
    commands = parser.add_subparsers(dest="role", required=True, metavar="ROLE")
    for module in (roles, fedhpa, why, audit, replay, fleet, certs, conformance):
        module.add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
