"""A node image: its name and its properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# kind's defaults, stated because the image's packet rules name them too.
POD_SUBNET = "10.244.0.0/16"
SERVICE_SUBNET = "10.96.0.0/16"


@dataclass(frozen=True)
class NodeImage:
    """An image by its name in the engine.

    An air-gapped one was made here and holds all that a node would pull; `versions` are then its
    components' by name, and a cluster's config has to state some of them.
    """

    reference: str
    air_gapped: bool
    versions: Mapping[str, str]
