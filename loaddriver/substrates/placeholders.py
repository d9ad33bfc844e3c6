"""What stands in a role's arguments for things that only the place knows, such as addresses."""

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
    """The role's arguments with every `{name}` replaced. SubstrateError for one without value."""

    def value(found: re.Match[str]) -> str:
        name = found[1]
        if name not in values:
            raise SubstrateError(
                f"role {role.name}: nothing is known as {{{name}}}; a role whose port is named "
                f"must have been started before. Known: {', '.join(sorted(values)) or 'nothing'}"
            )
        return values[name]

    return [_PLACEHOLDER.sub(value, argument) for argument in role.arguments]


def peer(role: str, port: str) -> str:
    """The placeholder's name for another role's port."""
    return f"{role}/{port}"


def mentions(role: RoleSpec, name: str) -> bool:
    """Say whether `{name}` stands in the role's arguments."""
    return any(name in _PLACEHOLDER.findall(argument) for argument in role.arguments)
