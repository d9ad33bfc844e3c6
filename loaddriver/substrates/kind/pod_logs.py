"""Containers' logs as a node keeps them, turned into one plain file per component."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

# Namespace, pod and container.
ContainerKey = tuple[str, str, str]

# `2026-11-21T08:00:00.1Z stdout F text`; P instead of F says that the line goes on.
_LINE = re.compile(r"\S+ (?:stdout|stderr) ([FP])(?: (.*))?")


def plain(lines: Iterable[str]) -> Iterator[str]:
    """What the container wrote, without the node's own marks."""
    begun = ""
    for line in lines:
        found = _LINE.fullmatch(line)
        if found is None:
            yield line
            continue
        begun += found[2] or ""
        if found[1] == "F":
            yield begun
            begun = ""
    if begun:
        yield begun


def write_plain(
    pods: Path, components: Mapping[ContainerKey, str], elsewhere: str, target: Path
) -> None:
    """Write `<component>.log` below `target` from a copy of a node's /var/log/pods.

    All starts of a container go into one file, the oldest first. Containers without a component
    are called by their pod, in the folder `elsewhere` below `target`.
    """
    written: dict[str, list[str]] = {}
    for folder in sorted(pods.glob("*/*/")):
        namespace, pod, _ = folder.parent.name.split("_", 2)
        name = components.get((namespace, pod, folder.name), f"{elsewhere}/{pod}/{folder.name}")
        starts = sorted(folder.glob("*.log"), key=lambda path: _number(path.stem))
        texts = (path.read_text(errors="replace").splitlines() for path in starts)
        written.setdefault(name, []).extend(line for text in texts for line in plain(text))
    for name, lines in written.items():
        file = target / f"{name}.log"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{line}\n" for line in lines))


def _number(stem: str) -> int:
    """Of a start; the node counts them, and rotated parts have more after the number."""
    found = re.match(r"\d+", stem)
    return int(found[0]) if found else 0
