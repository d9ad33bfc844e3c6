"""The audit log as clock: which requests the API server stamps, and how it writes them.

One line per request, when it is answered, with microseconds. A Pod made by a controller gets its
name from the server, so its creation is logged with the response, which has name and UID; all
else says in its metadata which object it meant. What the substrate does to prove that a cluster
works is left out.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from loaddriver.substrates.credentials import HEALTH_CHECK

_CORE = ""
_BIGFLEET = "bigfleet.lucy.sh"

# (level, verbs, API group, resources)
_LOGGED = (
    ("RequestResponse", ("create",), _CORE, ("pods",)),
    ("Metadata", ("create",), _CORE, ("pods/binding", "pods/eviction")),
    ("Metadata", ("delete", "deletecollection"), _CORE, ("pods",)),
    ("Metadata", ("create", "delete"), _CORE, ("nodes",)),
    ("Metadata", ("patch", "update"), _CORE, ("nodes/status",)),
    ("Metadata", ("create",), _BIGFLEET, ("capacityrequests",)),
    ("Metadata", ("patch", "update"), _BIGFLEET, ("capacityrequests/status",)),
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
        "rules": [{"level": "None", "users": [HEALTH_CHECK.user]}, *logged, {"level": "None"}],
    }
    path.write_text(yaml.safe_dump(policy, sort_keys=False))


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
