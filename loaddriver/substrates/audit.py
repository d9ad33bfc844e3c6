"""The audit log as clock: which requests the API server stamps, and how it writes them.

One line per request, when it is answered, with microseconds. A Pod made by a controller gets its
name from the server, so its creation is logged with the response, which has name and UID. So are
Nodes and the load's own CapacityRequests, whose labels say where they belong. A binding is logged
with its request, which names the Node, and so is a Node's status, which says whether it is ready,
and a CapacityRequest, which may ask for a machine beyond those that are there.
All else says in its metadata which object it meant. What a cluster does for itself is left out:
the proof that it works, kubelets of its own nodes, and pods that are no part of the load.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from loaddriver.substrates.credentials import HEALTH_CHECK

_CORE = ""
_BIGFLEET = "bigfleet.lucy.sh"
_AUTOSCALING, _HPAS = "autoscaling", "horizontalpodautoscalers"

# Where a cluster that runs pods of its own has them.
OWN_NAMESPACES = ("kube-system", "local-path-storage", "bigfleet-system", "scaletest-system")
_NOT_THE_LOAD = (
    {"users": [HEALTH_CHECK.user]},
    {"userGroups": ["system:nodes"]},
    {"namespaces": list(OWN_NAMESPACES)},
)

# The load's own writes: what the server acknowledged to it must be in the log.
_LOAD = "load-driver"
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
    ("Metadata", ("patch", "update"), _BIGFLEET, ("capacityrequests/status",)),
    # What a federation makes of HPAs, and what their controllers do; other runs have none.
    ("RequestResponse", ("create", "patch", "update"), _AUTOSCALING, (_HPAS, f"{_HPAS}/status")),
    ("Metadata", ("delete",), _AUTOSCALING, (_HPAS,)),
    ("RequestResponse", ("patch",), _BIGFLEET, ("federatedhorizontalpodautoscalers/status",)),
)


def write_policy(path: Path) -> None:
    """Write the policy that says what is logged."""
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
            *({"level": "None", **whose} for whose in _NOT_THE_LOAD),
            *_of_the_load(),
            *logged,
            {"level": "None"},
        ],
    }
    path.write_text(yaml.safe_dump(policy, sort_keys=False))


def _of_the_load() -> list[dict[str, Any]]:
    """Its own CapacityRequests with their labels, and that it wrote or scaled objects for
    controllers.
    """
    own = {"group": _BIGFLEET, "resources": ["capacityrequests"]}
    objects = [{"group": group, "resources": list(kinds)} for group, kinds in _WORKLOADS]
    return [
        {"level": "RequestResponse", "users": [_LOAD], "verbs": ["create"], "resources": [own]},
        {
            "level": "Metadata",
            "users": [_LOAD],
            "verbs": ["create", "delete"],
            "resources": [own, *objects],
        },
        {"level": "Metadata", "users": [_LOAD], "verbs": ["patch"], "resources": [_SCALED]},
    ]


def flags(policy: Path, log: Path) -> list[str]:
    """Flags of kube-apiserver for a log that loses nothing and stays in one file.

    Blocking: an answer leaves only after its line was written. Size and age never rotate it.
    """
    return [
        f"--audit-policy-file={policy}",
        f"--audit-log-path={log}",
        "--audit-log-mode=blocking",
        "--audit-log-maxsize=1048576",
        "--audit-log-maxbackup=0",
        "--audit-log-maxage=0",
    ]
