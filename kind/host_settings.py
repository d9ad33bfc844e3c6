"""Host settings that clusters change: kept before the first one starts, put back after the last.

The kernel has these once, not per container. kubelet sets the first five, systemd inside a node
the fs ones, and the container engine turns forwarding on.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

SETTINGS = (
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "fs/file-max",
    "fs/nr_open",
    "fs/protected_fifos",
    "fs/protected_hardlinks",
    "fs/protected_regular",
    "fs/protected_symlinks",
    "kernel/core_pattern",
    "net/ipv4/ip_forward",
    "net/ipv6/conf/all/forwarding",
)
FORWARDING = ("net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding")

# kind mounts it into nodes, and not every host has it.
_MODULES_FOLDER = "lib/modules"
_BOOT_ID = "kernel/random/boot_id"


@contextmanager
def shared_host_lock(state: Path, root: Path = Path("/")) -> Iterator[None]:
    """Keeps the settings, and keeps them from being put back until what starts here has started
    and can be seen. Any number of processes may start something at the same time.
    """
    state.parent.mkdir(parents=True, exist_ok=True)
    with _lock_file(state).open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        save_host_settings(state, root)
        yield


@contextmanager
def exclusive_host_lock(state: Path) -> Iterator[bool]:
    """Whether nobody is starting anything, which then waits until the end of this block."""
    state.parent.mkdir(parents=True, exist_ok=True)
    with _lock_file(state).open("w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _lock_file(state: Path) -> Path:
    return state.with_suffix(".lock")


def save_host_settings(state: Path, root: Path = Path("/")) -> None:
    """Writes the settings' present values to `state`, and makes the folder that kind mounts.

    What an earlier call of the same boot kept stays: it is older than any change.
    """
    state.parent.mkdir(parents=True, exist_ok=True)
    # One at a time: of two that begin together, one makes the folder and the other finds it there.
    with state.with_suffix(".saving").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _save(state, root)


def _save(state: Path, root: Path) -> None:
    settings = root / "proc/sys"
    boot = _read(settings / _BOOT_ID)
    if _kept(state).get("boot") == boot:
        return
    folder = root / _MODULES_FOLDER
    kept = {
        "boot": boot,
        "values": {n: v for n in SETTINGS if (v := _read(settings / n)) is not None},
        "madeModulesFolder": _made(folder),
    }
    draft = state.with_suffix(".draft")
    draft.write_text(json.dumps(kept, indent=2), encoding="utf-8")
    os.replace(draft, state)


def restore_host_settings(
    state: Path, root: Path = Path("/"), leave: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Puts back what differs and forgets `state`; returns the names of what was put back.

    Settings in `leave` stay as they are for now, and `state` with them, for a later call. Nothing
    happens where nothing was kept in this boot.
    Raises OSError for a setting that was changed and cannot be put back.
    """
    settings = root / "proc/sys"
    kept = _kept(state)
    if not kept or kept.get("boot") != _read(settings / _BOOT_ID):
        state.unlink(missing_ok=True)
        return ()
    changed = [
        (name, value)
        for name, value in kept["values"].items()
        if name not in leave and _read(settings / name) != value
    ]
    for name, value in changed:
        (settings / name).write_text(value + "\n", encoding="ascii")
    if kept["madeModulesFolder"]:
        with suppress(OSError):  # in use by something else by now, or already gone
            (root / _MODULES_FOLDER).rmdir()
    if not leave:
        state.unlink()
    return tuple(name.replace("/", ".") for name, _ in changed)


def _kept(state: Path) -> dict[str, Any]:
    try:
        kept = json.loads(state.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def _read(path: Path) -> str | None:
    """None for what this kernel does not have."""
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return None


def _made(folder: Path) -> bool:
    if folder.exists():
        return False
    try:
        folder.mkdir(parents=True)
    except PermissionError:
        return False
    return True
