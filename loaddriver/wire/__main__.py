"""The provider of a fleet on the wire, as a process.

    python -m loaddriver.wire profile.json --listen HOST:PORT --identity DIR

It has the machines of the profile in a run's folder. From SIGUSR1 on some of those in service fail,
and are back a minute later.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path

from bigfleet.api.auth.identity import Identity
from loaddriver.wire.provider import InstantProvider, inventory, lose_machines, machine_of, serve
from loaddriver.wire.settings import read_profile


async def _serve_until_ended(flags: argparse.Namespace) -> None:
    loop, losses, end = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, losses.set)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end.set)
    profile = read_profile(flags.profile)
    provider = InstantProvider(map(machine_of, inventory(profile)))
    server, _ = await serve(provider, flags.listen, Identity(flags.identity))
    settings = profile.settings
    losing = asyncio.create_task(
        lose_machines(provider, settings.lost_machines_per_minute, settings.seed, losses)
    )
    await end.wait()
    losing.cancel()
    await server.stop(None)


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m loaddriver.wire")
    parser.add_argument("profile", type=Path)
    parser.add_argument("--listen", required=True)
    parser.add_argument("--identity", type=Path, required=True)
    asyncio.run(_serve_until_ended(parser.parse_args()))


if __name__ == "__main__":
    main()
