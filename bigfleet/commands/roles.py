"""The long-running roles: `bigfleet shard`, `bigfleet coordinator` and so on.

A role's flags are those that the fields of its configuration declare.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from bigfleet.commands.config_flags import add_config, config_values
from bigfleet.commands.flags import identity_flag, identity_of

Run = Callable[[Any, asyncio.Event], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Role:
    """`load` imports the configuration class and the function that runs the role. `identity` is
    the principal's role and the field that names it; "" for roles that serve no gRPC.
    """

    name: str
    help: str
    load: Callable[[], tuple[Any, Run]]
    identity: tuple[str, str] = ("", "")


def add(roles: Any) -> None:
    """Add all roles but `fedhpa run` to the parser's `roles`."""
    for role in _ROLES:
        add_role(roles, role)


def add_role(roles: Any, role: Role) -> None:
    """Add one role to the parser's `roles`."""
    roles.add_parser(role.name, help=role.help, description=role.help, fill=partial(_fill, role))


def _fill(role: Role, parser: argparse.ArgumentParser) -> None:
    config, run = role.load()
    add_config(parser, config)
    if role.identity[0]:
        identity_flag(parser)
    parser.set_defaults(build=partial(_build, role, config, run))


def _build(
    role: Role, config: Any, run: Run, flags: argparse.Namespace
) -> Callable[[asyncio.Event], Coroutine[Any, Any, None]]:
    values = config_values(config, flags)
    principal, field = role.identity
    if principal:
        name = values[field] if field in values else getattr(config, field)
        values["identity"] = identity_of(flags, principal, name)
    return partial(run, config(**values))


def _provider() -> tuple[Any, Run]:
    from bigfleet.services.provider.config import ProviderConfig
    from bigfleet.services.provider.role import run

    return ProviderConfig, run


def _capi_provider() -> tuple[Any, Run]:
    from bigfleet.services.provider.capi.config import CapiConfig
    from bigfleet.services.provider.capi.role import run

    return CapiConfig, run


def _shard() -> tuple[Any, Run]:
    from bigfleet.services.shard.config import ShardConfig
    from bigfleet.services.shard.role import run

    return ShardConfig, run


def _coordinator() -> tuple[Any, Run]:
    from bigfleet.services.coordinator.config import CoordinatorConfig
    from bigfleet.services.coordinator.role import run

    return CoordinatorConfig, run


def _operator() -> tuple[Any, Run]:
    from bigfleet.controllers.operator.role import OperatorConfig, run

    return OperatorConfig, run


def _pod_controller() -> tuple[Any, Run]:
    from bigfleet.controllers.pod_controller.role import PodControllerConfig, run

    return PodControllerConfig, run


def _fedhpa() -> tuple[Any, Run]:
    from bigfleet.fedhpa.role import FedHpaConfig, run

    return FedHpaConfig, run


_ROLES = (
    Role(
        "provider",
        "run the kwok-backed capacity provider",
        _provider,
        ("provider", "provider_name"),
    ),
    Role(
        "capi-provider",
        "run a capacity provider that makes its machines by Cluster API",
        _capi_provider,
        ("provider", "provider_name"),
    ),
    Role("shard", "run a shard, which provisions machines", _shard, ("shard", "shard_id")),
    Role(
        "coordinator",
        "run a coordinator replica, which assigns domains and clusters to shards",
        _coordinator,
        ("coordinator", "node_id"),
    ),
    Role("operator", "run the operator of one cluster", _operator, ("cluster", "cluster_id")),
    Role("pod-controller", "write a CapacityRequest for every Pod of a cluster", _pod_controller),
)
FEDHPA_RUN = Role("run", "run the controller of federated HPAs and workloads", _fedhpa)
