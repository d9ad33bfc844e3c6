"""Command-line flags, declared on the configuration fields that they set. Pure.

`field: Annotated[float, Flag("--name", "what it does")] = 1.0` gives the field a flag whose default
is the field's; `bigfleet.commands.config_flags` adds the flags to a parser and reads them back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from bigfleet.model.errors import InvalidInput

_WILDCARD_HOSTS = ("", "0.0.0.0", "[::]", "::")


@dataclass(frozen=True, eq=False)
class Flag:
    """The flag of a field, required if the field has no default and may not be None.

    `parse` turns the flag's text into the field's value (ValueError or InvalidInput if it cannot);
    by default the field's type does. `show` formats the default for the help text. `choices` are
    the accepted texts and their values. `host_field` is the field that takes the host of a
    HOST:PORT. `key` is the entry of a mapping field that the flag sets. A `repeated` flag collects
    its values into a tuple.
    """

    name: str
    help: str = ""
    metavar: str | None = None
    parse: Callable[[str], Any] | None = None
    show: Callable[[Any], str] | None = None
    choices: Mapping[str, Any] | None = None
    host_field: str = ""
    key: Hashable = None
    repeated: bool = False


def parse_address(text: str) -> tuple[str, int]:
    """HOST:PORT; ValueError for anything else."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{text!r} is not HOST:PORT")
    return host, int(port)


def parse_addresses(text: str) -> tuple[str, ...]:
    """HOST:PORT,HOST:PORT,...; ValueError for anything else."""
    addresses = tuple(text.split(","))
    for each in addresses:
        parse_address(each)
    return addresses


def parse_peers(text: str) -> Mapping[str, str]:
    """ID=HOST:PORT,...; ValueError for anything else."""
    peers: dict[str, str] = {}
    for part in text.split(","):
        name, equals, address = part.partition("=")
        if not (name and equals) or name in peers:
            raise ValueError(f"{part!r} is not ID=HOST:PORT with a unique ID")
        parse_address(address)
        peers[name] = address
    return peers


def parse_numbers(text: str, names: str) -> tuple[float, ...]:
    """As many finite numbers >= 0 as `names` (A,B,...) has; ValueError otherwise."""
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) != len(names.split(",")) or not all(0 <= n < math.inf for n in numbers):
        raise ValueError(f"{text!r} is not {names}, finite numbers >= 0")
    return numbers


def check_advertised(listen_host: str, listen_port: int, advertised: str) -> None:
    """InvalidInput if peers could not dial the listen address and no other is advertised."""
    if not advertised and listen_host in _WILDCARD_HOSTS:
        hint = "is every address of this host; --advertise HOST:PORT says where others reach it"
        raise InvalidInput("--listen", f"{listen_host}:{listen_port}", hint)


def _parse_advertised(text: str) -> str:
    host, port = parse_address(text)
    if host in _WILDCARD_HOSTS or port == 0:
        raise ValueError(f"{text!r} is not a HOST:PORT that others can dial")
    return text


def _parse_lease(text: str) -> float:
    (seconds,) = parse_numbers(text, "SECONDS")
    if not 1 <= seconds <= 3600:
        raise ValueError(f"{text!r} is not 1 to 3600 seconds")
    return seconds


LISTEN = Flag("--listen", "serve gRPC here", "HOST:PORT", parse_address, host_field="listen_host")
OBSERVE = Flag(
    "--observe",
    "serve /healthz, /readyz and /metrics here",
    "HOST:PORT",
    parse_address,
    host_field="observe_host",
)
ADVERTISE = Flag(
    "--advertise",
    "where clients reach this process (default: where it listens)",
    "HOST:PORT",
    _parse_advertised,
)
STATE = Flag("--state", "state directory, used by this process alone", "DIR")
KUBECONFIG = Flag("--kubeconfig", "kubeconfig (default: the cluster this pod runs in)", "FILE")
LEASE = Flag(
    "--lease",
    "duration of the leader election Lease; the longest wait after a leader died",
    "SECONDS",
    _parse_lease,
)
REPLICA = Flag(
    "--replica",
    "unique name of this replica (default: the host name and a random number)",
    "NAME",
)
