"""The contexts of a user's kubeconfig files, each as a file of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from loaddriver.errors import ProfileError

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


def read_contexts(environment: Mapping[str, str], names: Sequence[str]) -> list[Context]:
    """The named contexts, or the current one if none is named, of KUBECONFIG's files.

    As kubectl does, the first file that has a name wins. Raises ProfileError.
    """
    paths = _paths(environment)
    found: dict[str, _Named] = {kind: {} for kind in _LISTS}
    current = ""
    for path in paths:
        content = _read(path)
        current = current or content.get("current-context") or ""
        for kind, inner in _LISTS.items():
            for each in content.get(kind) or ():
                found[kind].setdefault(each["name"], _absolute(each.get(inner) or {}, path))
    if not names and not current:
        raise ProfileError([f"{_listed(paths)}: no current context; name one with --context"])
    return [_context(name, found, paths) for name in names or [current]]


def _paths(environment: Mapping[str, str]) -> list[Path]:
    given = [Path(each) for each in environment.get("KUBECONFIG", "").split(os.pathsep) if each]
    paths = given or [Path(environment.get("HOME", "/")) / ".kube" / "config"]
    existing = [path for path in paths if path.is_file()]
    if not existing:
        raise ProfileError([f"{_listed(paths)}: no such kubeconfig; set KUBECONFIG"])
    return existing


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
