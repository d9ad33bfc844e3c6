"""The contexts of a user's kubeconfig files, or a pod's own account, each as a file of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from loaddriver.errors import ProfileError

IN_CLUSTER = "in-cluster"
"""The context of a pod without a kubeconfig: its ServiceAccount, in the cluster that it runs in."""
ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes mounts a pod's token, the CA and the name of its namespace."""
_HOST, _PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
_LISTS = {"contexts": "context", "clusters": "cluster", "users": "user"}
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
_Named = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Context:
    """One context; `cluster` and `user` are its entries, whose files have absolute paths."""

    name: str
    cluster: Mapping[str, Any]
    user: Mapping[str, Any]

    @property
    def kubeconfig(self) -> str:
        """A kubeconfig with this context alone."""
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": self.name, "cluster": dict(self.cluster)}],
            "users": [{"name": self.name, "user": dict(self.user)}],
            "contexts": [{"name": self.name, "context": {"cluster": self.name, "user": self.name}}],
            "current-context": self.name,
        }
        return yaml.safe_dump(content)


def read_contexts(
    environment: Mapping[str, str], names: Sequence[str], account: Path = ACCOUNT_FOLDER
) -> list[Context]:
    """The named contexts, or the current one if none is named, of KUBECONFIG's files.

    As kubectl does, the first file that has a name wins, and a pod that has none is its
    ServiceAccount in `account`, as the context `in-cluster`. Raises ProfileError.
    """
    contents = _contents(environment, account)
    paths = [path for path, _ in contents]
    found: dict[str, _Named] = {kind: {} for kind in _LISTS}
    current = ""
    for path, content in contents:
        current = current or content.get("current-context") or ""
        for kind, inner in _LISTS.items():
            for each in content.get(kind) or ():
                found[kind].setdefault(each["name"], _absolute(each.get(inner) or {}, path))
    if not names and not current:
        raise ProfileError([f"{_listed(paths)}: no current context; name one with --context"])
    return [_context(name, found, paths) for name in names or [current]]


def in_pod(environment: Mapping[str, str]) -> bool:
    """Whether this process runs in a pod, by what Kubernetes tells every container."""
    return bool(environment.get(_HOST) and environment.get(_PORT))


def _contents(
    environment: Mapping[str, str], account: Path
) -> list[tuple[Path, Mapping[str, Any]]]:
    """Each kubeconfig with its path, or in a pod without any the one of its ServiceAccount."""
    given = [Path(each) for each in environment.get("KUBECONFIG", "").split(os.pathsep) if each]
    paths = given or [Path(environment.get("HOME", "/")) / ".kube" / "config"]
    existing = [path for path in paths if path.is_file()]
    if existing:
        return [(path, _read(path)) for path in existing]
    if not given and in_pod(environment) and (account / "token").is_file():
        return [(account / "kubeconfig", _of_account(environment))]
    raise ProfileError([f"{_listed(paths)}: no such kubeconfig; set KUBECONFIG"])


def _of_account(environment: Mapping[str, str]) -> dict[str, Any]:
    """A kubeconfig in the folder of a ServiceAccount. It names the file of the token, which is
    replaced there before it expires.
    """
    host = environment[_HOST]
    address = f"[{host}]" if ":" in host else host
    server = f"https://{address}:{environment[_PORT]}"
    entries = {
        "contexts": {"cluster": IN_CLUSTER, "user": IN_CLUSTER},
        "clusters": {"server": server, "certificate-authority": "ca.crt"},
        "users": {"tokenFile": "token"},
    }
    lists = {kind: [{"name": IN_CLUSTER, _LISTS[kind]: entry}] for kind, entry in entries.items()}
    return {**lists, "current-context": IN_CLUSTER}


def _context(name: str, found: Mapping[str, _Named], paths: Sequence[Path]) -> Context:
    context = found["contexts"].get(name)
    if context is None:
        known = ", ".join(sorted(found["contexts"])) or "none"
        raise ProfileError([f"--context {name}: not in {_listed(paths)} (known: {known})"])
    parts = []
    for kind, key in (("clusters", "cluster"), ("users", "user")):
        entry = found[kind].get(str(context.get(key)))
        if entry is None:
            raise ProfileError(
                [f"--context {name}: its {key} {context.get(key)!r} is not in {_listed(paths)}"]
            )
        parts.append(entry)
    return Context(name, *parts)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ProfileError([f"{path}: {error}"]) from None
    if not isinstance(content, dict):
        raise ProfileError([f"{path}: not a kubeconfig"])
    return content


def _absolute(entry: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Paths in a kubeconfig are relative to its folder."""
    return dict(_absolute_items(entry, path.absolute().parent))


def _absolute_items(entry: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, Any]]:
    for key, value in entry.items():
        if key in _FILES and value:
            yield key, str(folder / value)
        elif key == "exec" and "/" in value.get("command", ""):
            yield key, {**value, "command": str(folder / value["command"])}
        else:
            yield key, value


def _listed(paths: Sequence[Path]) -> str:
    return ", ".join(map(str, paths))
