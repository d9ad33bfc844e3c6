"""The file of offerings: which machines the provider can have, and how they join each cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml
from msgspec import Meta

from bigfleet.model import resources
from bigfleet.model.errors import InvalidInput
from bigfleet.model.machine import VALID_ID, Machine, MachineState, is_valid_id
from bigfleet.services.provider.inventory import MachineSpec, machine_of

_Name = Annotated[str, Meta(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")]
# Of Kubernetes and of Cluster API: a kind's resource is its plural in lower case.
_Kind = Annotated[str, Meta(pattern=r"^[A-Z][A-Za-z0-9]*Template$")]
_Seconds = Annotated[float, Meta(gt=0)]
_MAX_MACHINES = 100_000


class TemplateRef(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename="camel"):
    """A template of Cluster API's, such as an AWSMachineTemplate, in the provider's namespace."""

    api_version: Annotated[str, Meta(pattern=r"^[a-z0-9.-]+/v[a-z0-9]+$")]
    kind: _Kind
    name: _Name

    @property
    def group(self) -> str:
        """Its API group."""
        return self.api_version.partition("/")[0]

    @property
    def made_kind(self) -> str:
        """The kind of what is made from it."""
        return self.kind.removesuffix("Template")


class Offering(MachineSpec):
    """`count` machines of one kind, called NAME-0, NAME-1 and so on.

    They are made from `template`. One whose Node is not Ready `boot_timeout_seconds` after its
    order has failed, and so has one that still exists `removal_timeout_seconds` after its drain.
    """

    name: _Name
    count: Annotated[int, Meta(ge=1, le=_MAX_MACHINES)]
    template: TemplateRef
    failure_domain: str = ""
    allocatable: Mapping[str, str] = msgspec.field(default_factory=dict)
    boot_timeout_seconds: _Seconds = 1200.0
    removal_timeout_seconds: _Seconds = 1800.0


class ClusterEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """How machines join the cluster that BigFleet calls `id` and Cluster API `name`.

    Its bootstrap data is made from the key `value` of the Secret `bootstrap_secret`, or by the
    controller of what is made from `bootstrap_template`. `version` is that of the kubelets.
    """

    id: str
    name: str = ""
    version: str = ""
    bootstrap_secret: str = ""
    bootstrap_template: TemplateRef | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    offerings: list[Offering]
    clusters: list[ClusterEntry]


@dataclass(frozen=True)
class Catalog:
    """What the file offers. `machines` are as they are before the first order."""

    offerings: Mapping[str, Offering]
    clusters: Mapping[str, ClusterEntry]
    machines: Sequence[Machine]
    _patterns: Mapping[str, Machine] = field(repr=False)

    def offering_of(self, machine_id: str) -> Offering | None:
        """The offering that has, or had, a machine of this id."""
        name, dash, number = machine_id.rpartition("-")
        numbered = dash and number.isdecimal() and number == str(int(number))
        return self.offerings.get(name) if numbered else None

    def machine(self, machine_id: str) -> Machine | None:
        """The machine before its first order, also one beyond its offering's `count`."""
        offering = self.offering_of(machine_id)
        return None if offering is None else _numbered(self._patterns[offering.name], machine_id)


def read(path: Path) -> Catalog:
    """The catalog in the file. InvalidInput names the entry and the field."""
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
    except OSError as error:
        raise InvalidInput("offerings", str(path), f"cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, ValueError) as error:
        why = f"is not valid YAML: {' '.join(str(error).split())}"
        raise InvalidInput("offerings", str(path), why) from None
    return parse(content, str(path))


def parse(content: Any, where: str) -> Catalog:
    """The catalog in the decoded file. InvalidInput names the entry and the field."""
    try:
        file = msgspec.convert(content, _File)
    except msgspec.ValidationError as error:
        raise InvalidInput("offerings", where, f"are invalid: {error}") from None
    for what, names in (
        ("offerings: name", [each.name for each in file.offerings]),
        ("clusters: id", [each.id for each in file.clusters]),
    ):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InvalidInput(f"{where}: {what}", ", ".join(twice), "is there twice")
    patterns = {each.name: _pattern(each, where) for each in file.offerings}
    machines = [
        _numbered(patterns[each.name], f"{each.name}-{number}")
        for each in file.offerings
        for number in range(each.count)
    ]
    if not 0 < len(machines) <= _MAX_MACHINES:
        raise InvalidInput(f"{where}: offerings", len(machines), f"is not 1 to {_MAX_MACHINES}")
    clusters = {each.id: _checked(each, f"{where}: cluster {each.id}") for each in file.clusters}
    return Catalog({each.name: each for each in file.offerings}, clusters, machines, patterns)


def _pattern(offering: Offering, where: str) -> Machine:
    """The offering's first machine."""
    where = f"{where}: offering {offering.name}"
    last = f"{offering.name}-{offering.count - 1}"
    if not is_valid_id(last):
        raise InvalidInput(where, last, f"is no name of a machine, which is {VALID_ID}")
    first = machine_of(offering, f"{offering.name}-0", MachineState.SPECULATIVE, where)
    if offering.allocatable:
        allocatable = resources.parse_capacity(offering.allocatable)
        first = replace(first, allocatable=allocatable)
    for resource, amount in first.allocatable.items():
        if amount > first.resources.get(resource, 0):
            text = resources.text(resource, amount)
            raise InvalidInput(
                f"{where}: allocatable", text, f"of {resource} is more than there is"
            )
    return first


def _numbered(pattern: Machine, machine_id: str) -> Machine:
    """Machines that are paid for anyway are there; others could be."""
    if pattern.capacity_type.elastic:
        return replace(pattern, id=machine_id)
    return replace(pattern, id=machine_id, state=MachineState.IDLE, host=machine_id)


def _checked(entry: ClusterEntry, where: str) -> ClusterEntry:
    if not entry.id:
        raise InvalidInput(f"{where}: id", "", "is empty")
    if bool(entry.bootstrap_secret) == (entry.bootstrap_template is not None):
        hint = "needs one of bootstrap_secret and bootstrap_template"
        raise InvalidInput(where, entry.bootstrap_secret, hint)
    return msgspec.structs.replace(entry, name=entry.name or entry.id)
