"""Configuration of a provider of Cluster API's machines."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from bigfleet.api.auth.identity import Identity
from bigfleet.flags import KUBECONFIG, LISTEN, OBSERVE, Flag
from bigfleet.model.errors import InvalidInput

# It is part of the names of ConfigMaps, and a label.
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class CapiConfig:
    """Port 0 lets the system choose.

    `offerings_file` (YAML) says which machines there can be and how they join each cluster. The
    Cluster API objects and the records of machines are in `namespace` of the management cluster. A
    failed fixed machine is idle again after `repair_seconds`. Without an `identity` it serves
    plaintext.
    """

    listen_port: Annotated[int, LISTEN]
    observe_port: Annotated[int, OBSERVE]
    offerings_file: Annotated[
        Path, Flag("--offerings", "machines to offer, and clusters to join (YAML)", "FILE")
    ]
    namespace: Annotated[
        str, Flag("--namespace", "namespace of the Cluster API objects", "NAMESPACE")
    ]
    kubeconfig: Annotated[Path | None, KUBECONFIG] = None
    listen_host: str = "127.0.0.1"
    observe_host: str = "127.0.0.1"
    provider_name: Annotated[str, Flag("--name", "its name in quotas and identities", "NAME")] = (
        "cluster-api"
    )
    repair_seconds: Annotated[
        float, Flag("--repair-time", "until a failed fixed machine is idle again", "SECONDS")
    ] = 60.0
    identity: Identity | None = None

    def __post_init__(self) -> None:
        """InvalidInput for values that cannot work."""
        for what, value in (("namespace", self.namespace), ("name", self.provider_name)):
            if not _NAME.fullmatch(value):
                raise InvalidInput(what, value, "is not a DNS-1123 label")
        if not 0 <= self.repair_seconds < math.inf:
            raise InvalidInput("repair_seconds", self.repair_seconds, "is not a number >= 0")
