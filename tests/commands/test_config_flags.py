"""The flags of roles are those that their configurations declare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bigfleet.commands.config_flags import LazyParser, add_config, config_values
from bigfleet.controllers.operator.role import OperatorConfig
from bigfleet.controllers.pod_controller.role import PodControllerConfig
from bigfleet.engine.snapshot import EngineConfig, VictimWeights
from bigfleet.fedhpa.role import FedHpaConfig
from bigfleet.model.domain import BY_ZONE
from bigfleet.model.machine import CapacityType
from bigfleet.services.coordinator.config import CoordinatorConfig
from bigfleet.services.provider.config import Latencies, Latency, ProviderConfig
from bigfleet.services.shard.config import ShardConfig
from bigfleet.services.shard.records.journal import JournalLimits

_SERVER = ["--listen", "127.0.0.1:1", "--observe", "127.0.0.1:2", "--state", "s"]
_SHARD = [*_SERVER, "--shard-id", "s", "--provider", "p:1"]
_PROVIDER = [*_SERVER, "--inventory", "i"]


def _read(config: Any, arguments: Sequence[str]) -> Any:
    parser = LazyParser(fill=lambda parser: add_config(parser, config))
    return config(**config_values(config, parser.parse_args(arguments)))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (_SHARD, ShardConfig("s", 1, 2, ("p:1",), Path("s"))),
        (_PROVIDER, ProviderConfig(1, 2, Path("s"), Path("i"), None)),
        (
            [*_SERVER, "--node-id", "a", "--etcd", "/bin/sh"],
            CoordinatorConfig("a", 1, 2, Path("s"), Path("/bin/sh")),
        ),
        (
            ["--cluster-id", "c", "--shard", "a:1,b:2", "--observe", "127.0.0.1:2"],
            OperatorConfig("c", ("a:1", "b:2"), None, 2),
        ),
        (["--observe", "127.0.0.1:2"], PodControllerConfig(None, 2)),
        (["--observe", "127.0.0.1:2"], FedHpaConfig(None, 2)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_flags_default_to_the_configurations_defaults(
    arguments: Sequence[str], expected: object
) -> None:
    """A default is stated once, on the field."""
    assert _read(type(expected), arguments) == expected


def test_flags_set_nested_fields_and_entries_of_mappings() -> None:
    """One flag may set a part of a nested configuration, and several one mapping."""
    given = _read(
        ShardConfig,
        [
            *_SHARD,
            *("--journal-megabytes", "2", "--victim-weights", "1,2,3,4", "--spot-hold", "5"),
            *("--domains", "zone", "--actuation-paused"),
        ],
    )
    default = ShardConfig("s", 1, 2, ("p:1",), Path("s"))
    assert given == replace(
        default,
        journal_limits=JournalLimits(2 * 2**20),
        actuation_paused=True,
        domain_keys=BY_ZONE,
        engine=EngineConfig(
            victim_weights=VictimWeights(1, 2, 3, 4),
            idle_hold_seconds={CapacityType.ON_DEMAND: 600.0, CapacityType.SPOT: 5.0},
        ),
    )


def test_flags_parse_latencies_and_repeated_values() -> None:
    """A value of two numbers, and a flag that may be given more than once."""
    provider = _read(ProviderConfig, [*_PROVIDER, "--drain-latency", "1,2"])
    assert provider.latencies == Latencies(drain=Latency(1, 2))
    namespaces = ["--ignore-namespace", "a", "--ignore-namespace", "b"]
    controller = _read(PodControllerConfig, ["--observe", "h:2", *namespaces])
    assert (controller.observe_host, controller.ignored_namespaces) == ("h", ("a", "b"))


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--victim-weights", "1,2", "is not GAP,DRAIN,INTERRUPTION,RECLAMATION"),
        ("--coordinator", "c:1,d", "is not HOST:PORT"),
        ("--advertise", "0.0.0.0:1", "is not a HOST:PORT that others can dial"),
        ("--cycle", "soon", "invalid float value: 'soon'"),
    ],
)
def test_invalid_values_are_rejected_with_the_flags_name(
    flag: str, value: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message of the parser that rejects it stands behind the flag."""
    with pytest.raises(SystemExit):
        _read(ShardConfig, [*_SHARD, flag, value])
    error = capsys.readouterr().err
    assert f"argument {flag}: " in error
    assert message in error
