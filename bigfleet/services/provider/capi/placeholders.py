"""Fills `{{bigfleet.NAME}}` in bootstrap data. Pure.

Everything else in braces is left alone: cloud-init has templates of its own.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from bigfleet.api.node_labels import may_be_set_by_kubelet
from bigfleet.model.errors import UNDECODABLE, InvalidInput
from bigfleet.model.machine import Machine

_PLACEHOLDER = re.compile(r"\{\{ ?bigfleet\.(\w+) ?\}\}")


class _Blob(msgspec.Struct, rename="camel"):
    """What the operator of a cluster tells a joining machine."""

    api_server: str
    token: str
    ca_pem: str = ""
    labels: dict[str, str] = {}


def facts_of(machine: Machine, blob: bytes) -> Mapping[str, str]:
    """The value of each placeholder. Those of the blob's content are absent if it is not one that
    a cluster's operator has made.
    """
    try:
        told = msgspec.json.decode(blob, type=_Blob)
    except UNDECODABLE:
        told = None
    labels = {**(told.labels if told else {}), **machine.labels}
    facts = {
        "machine": machine.id,
        "cluster": machine.cluster,
        "instanceType": machine.instance_type,
        "zone": machine.zone,
        "labels": ",".join(
            f"{key}={value}" for key, value in sorted(labels.items()) if may_be_set_by_kubelet(key)
        ),
        "taints": ",".join(map(str, machine.taints)),
        "blobBase64": base64.b64encode(blob).decode(),
    }
    if told is not None:
        facts["apiServer"], facts["token"] = told.api_server, told.token
        facts["caBase64"] = base64.b64encode(told.ca_pem.encode()).decode()
    return facts


def filled(value: Any, facts: Mapping[str, str], where: str) -> Any:
    """`value`, a string or JSON, with all placeholders in its strings replaced.

    InvalidInput for an unknown placeholder.
    """

    def fact(found: re.Match[str]) -> str:
        if found[1] not in facts:
            known = ", ".join(sorted(facts))
            raise InvalidInput(f"{where}: placeholder", found[0], f"is not one of {known}")
        return facts[found[1]]

    if isinstance(value, str):
        return _PLACEHOLDER.sub(fact, value)
    if isinstance(value, Mapping):
        return {key: filled(each, facts, where) for key, each in value.items()}
    if isinstance(value, list):
        return [filled(each, facts, where) for each in value]
    return value
