"""What every substrate of processes does to start a role: its arguments' values, and the wait for
it. A role that is another program than BigFleet has its cluster's kubeconfig in KUBECONFIG.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import aiohttp

from loaddriver.substrates.base import RoleSpec, SubstrateError
from loaddriver.substrates.probes import answers
from loaddriver.substrates.processes import Process, until_ready

# Placeholders in a role's arguments, for values such as addresses.
_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")


def own_values(role: RoleSpec, addresses: Mapping[str, str]) -> dict[str, str]:
    """The placeholders for the role's own ports, by `addresses`, and for its input files."""
    return {
        **addresses,
        **{f"{port}-number": at.rpartition(":")[2] for port, at in addresses.items()},
        **{name: str(path) for name, path in role.inputs.items()},
    }


def arguments_of(role: RoleSpec, values: Mapping[str, str]) -> list[str]:
    """The role's arguments with every `{name}` replaced. Raises SubstrateError for an unknown
    one.
    """

    def value(found: re.Match[str]) -> str:
        name = found[1]
        if name not in values:
            raise SubstrateError(
                f"role {role.name}: unknown placeholder {{{name}}}; a role whose port is used "
                f"must have been started before. Known: {', '.join(sorted(values)) or 'nothing'}"
            )
        return values[name]

    return [_PLACEHOLDER.sub(value, argument) for argument in role.arguments]


async def until_serving(process: Process, observe: str | None, deadline_seconds: float) -> None:
    """Wait until the role says that it is ready; with `observe` None, not at all. Raises
    SubstrateError on exit or timeout.
    """
    if observe is None:
        return
    async with aiohttp.ClientSession() as session:
        await until_ready(
            process, lambda: answers(session, f"http://{observe}/readyz"), deadline_seconds
        )
