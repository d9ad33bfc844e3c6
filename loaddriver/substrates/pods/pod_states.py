"""What the host cluster says of a release's pods. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from loaddriver.substrates.base import RoleSpec
from loaddriver.substrates.pods.containers import Container, Pod, container_of

PodAndContainer = tuple[str, str]


class _Spec(msgspec.Struct):
    name: str
    args: list[str] = []


class _PodSpec(msgspec.Struct, rename="camel"):
    containers: list[_Spec] = []
    init_containers: list[_Spec] = []


class _PodWithSpec(Pod):
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)


class _PodList(msgspec.Struct):
    items: list[_PodWithSpec]


@dataclass(frozen=True)
class PodContainer:
    """A container of a component, and the arguments that it runs with."""

    container: Container
    arguments: tuple[str, ...]


def read_pods(body: bytes, components: Mapping[PodAndContainer, str]) -> dict[str, PodContainer]:
    """The containers of a Pod list by component; pods that are being deleted are left out."""
    found = {}
    for pod in msgspec.json.decode(body, type=_PodList).items:
        if pod.metadata.deletion_timestamp is not None:
            continue
        specs = {each.name: each for each in (*pod.spec.containers, *pod.spec.init_containers)}
        for status in (*pod.status.container_statuses, *pod.status.init_container_statuses):
            component = components.get((pod.metadata.name, status.name))
            if component is not None:
                arguments = tuple(specs[status.name].args)
                container = container_of(pod.metadata, status, component)
                found[component] = PodContainer(container, arguments)
    return found


def differing_flags(role: RoleSpec, arguments: Sequence[str]) -> Iterator[str]:
    """What a role runs with, against what the profile wants of it: a phrase for each difference.

    Flags whose values depend on the place, such as addresses, are not compared.
    """
    given = dict(_flags(arguments))
    for flag, wanted in constant_flags(role).items():
        if flag not in given:
            yield f"{flag} is not set, the profile wants {wanted}"
        elif not _equal(given[flag], wanted):
            yield f"{flag} is {given[flag]}, the profile wants {wanted}"


def constant_flags(role: RoleSpec) -> dict[str, str]:
    """The role's flags that are the same wherever it runs.

    Names that the place gives, such as a shard's own, are not.
    """
    return {
        flag: value
        for flag, value in _flags(role.arguments)
        if "{" not in value and flag not in _NAMES
    }


# A pod's name is its role's id.
_NAMES = ("--shard-id", "--node-id", "--cluster-id", "--expected-shards")


def _flags(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Flags with their values, whether written `--flag value` or `--flag=value`."""
    following = [*arguments[1:], ""]
    for argument, after in zip(arguments, following, strict=True):
        if argument.startswith("--"):
            flag, separator, value = argument.partition("=")
            yield flag, value if separator else "" if after.startswith("--") else after


def _equal(one: str, other: str) -> bool:
    try:
        return float(one) == float(other)
    except ValueError:
        return one == other
