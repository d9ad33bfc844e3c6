"""The audit policy: which requests provide timestamps, and at which level they are logged.

The log has one line per completed request, with microseconds. A Pod created by a controller gets
its name from the server, so its creation is logged with the response, which has name and UID; so
are Nodes and the load's own CapacityRequests, for their labels. Bindings (for their Node), Node
statuses (for readiness) and CapacityRequests (which may ask for an additional machine, and whose
status has when a shard accepted them) are logged with the request, other requests with metadata
only. Requests of the cluster's own components, for verification at start, and on pods that are not
part of the load are omitted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from loaddriver.substrates.credentials import HEALTH_CHECK, LOAD_DRIVER

_CORE = ""
_BIGFLEET = "bigfleet.lucy.sh"
_AUTOSCALING, _HPAS = "autoscaling", "horizontalpodautoscalers"

# The namespaces of a cluster's own pods.
OWN_NAMESPACES = ("kube-system", "local-path-storage", "bigfleet-system", "scaletest-system")
_NOT_THELOAD_DRIVER = (
    {"users": [HEALTH_CHECK.user]},
    {"userGroups": ["system:nodes"]},
    {"namespaces": list(OWN_NAMESPACES)},
)

# The load's own writes: all successful ones must be in the log.
_WORKLOADS = (("apps", ("deployments", "statefulsets", "daemonsets")), ("batch", ("jobs",)))
_SCALED = {"group": "apps", "resources": ["deployments/scale", "statefulsets/scale"]}

# (level, verbs, API group, resources)
_LOGGED = (
    ("RequestResponse", ("create",), _CORE, ("pods",)),
    ("Request", ("create",), _CORE, ("pods/binding",)),
    ("Metadata", ("create",), _CORE, ("pods/eviction",)),
    ("Metadata", ("delete", "deletecollection"), _CORE, ("pods",)),
    ("RequestResponse", ("create",), _CORE, ("nodes",)),
    ("Metadata", ("delete",), _CORE, ("nodes",)),
    ("Request", ("patch", "update"), _CORE, ("nodes/status",)),
    ("Request", ("create", "patch", "update"), _BIGFLEET, ("capacityrequests",)),
    ("Request", ("patch", "update"), _BIGFLEET, ("capacityrequests/status",)),
    # Writes of a federation and of the HPA controllers; other runs have none.
    ("RequestResponse", ("create", "patch", "update"), _AUTOSCALING, (_HPAS, f"{_HPAS}/status")),
    ("Metadata", ("delete",), _AUTOSCALING, (_HPAS,)),
    ("RequestResponse", ("patch",), _BIGFLEET, ("federatedhorizontalpodautoscalers/status",)),
)


def write_policy(path: Path) -> None:
    """Write the audit policy."""
    logged = [
        {
            "level": level,
            "verbs": list(verbs),
            "resources": [{"group": group, "resources": list(resources)}],
        }
        for level, verbs, group, resources in _LOGGED
    ]
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted", "Panic"],
        "omitManagedFields": True,
        "rules": [
            *({"level": "None", **whose} for whose in _NOT_THELOAD_DRIVER),
            *_of_the_load(),
            *logged,
            {"level": "None"},
        ],
    }
    path.write_text(yaml.safe_dump(policy, sort_keys=False))


def _of_the_load() -> list[dict[str, Any]]:
    """Rules for the load's CapacityRequests, and for its writes of workloads and their scale."""
    own = {"group": _BIGFLEET, "resources": ["capacityrequests"]}
    objects = [{"group": group, "resources": list(kinds)} for group, kinds in _WORKLOADS]
    return [
        {
            "level": "RequestResponse",
            "users": [LOAD_DRIVER],
            "verbs": ["create"],
            "resources": [own],
        },
        {
            "level": "Metadata",
            "users": [LOAD_DRIVER],
            "verbs": ["create", "delete"],
            "resources": [own, *objects],
        },
        {"level": "Metadata", "users": [LOAD_DRIVER], "verbs": ["patch"], "resources": [_SCALED]},
    ]


def flags(policy: Path, log: Path) -> list[str]:
    """Flags of kube-apiserver for a lossless log in a single file.

    Blocking mode: a response is sent only after its line was written. There is no rotation.
    """
    return [
        f"--audit-policy-file={policy}",
        f"--audit-log-path={log}",
        "--audit-log-mode=blocking",
        "--audit-log-maxsize=1048576",
        "--audit-log-maxbackup=0",
        "--audit-log-maxage=0",
    ]
