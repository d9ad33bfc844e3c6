"""Placeholders in a role's arguments, for values of the substrate such as addresses."""

from __future__ import annotations

import re
from collections.abc import Mapping

from loaddriver.substrates.base import RoleSpec, SubstrateError

STATE = "state"
IDENTITY = "identity"
API_SERVER = "api-server"
ETCD = "etcd"
_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")


def substituted(role: RoleSpec, values: Mapping[str, str]) -> list[str]:
    """Replace every `{name}` in the role's arguments. Raises SubstrateError for an unknown one."""

    def value(found: re.Match[str]) -> str:
        name = found[1]
        if name not in values:
            raise SubstrateError(
                f"role {role.name}: unknown placeholder {{{name}}}; a role whose port is used "
                f"must have been started before. Known: {', '.join(sorted(values)) or 'nothing'}"
            )
        return values[name]

    return [_PLACEHOLDER.sub(value, argument) for argument in role.arguments]


def peer(role: str, port: str) -> str:
    """The placeholder of another role's port."""
    return f"{role}/{port}"


def mentions(role: RoleSpec, name: str) -> bool:
    """Whether the role's arguments contain `{name}`."""
    return any(name in _PLACEHOLDER.findall(argument) for argument in role.arguments)
