"""Host settings that clusters change: saved before the first one, restored after the last.

These kernel settings are global, not per container. kubelet sets the first five, systemd inside a
node the fs ones, and the container engine enables forwarding.
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
    """Whether the exclusive lock was acquired: nothing is starting, nor can it until released."""
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
    """Save the settings' current values to `state`, and create the folder that kind mounts.

    Values saved earlier in the same boot are kept: they precede any change.
    """
    state.parent.mkdir(parents=True, exist_ok=True)
    # Serialized: of two concurrent calls only one creates the folder.
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
    """Restore changed settings and delete `state`; return the names of restored settings.

    Settings in `leave` are not restored yet, and `state` is kept for a later call. Does nothing
    without values saved in this boot. Raises OSError for a setting that cannot be restored.
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
        with suppress(OSError):  # in use, or already removed
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
    """The value, or None if this kernel does not have the setting."""
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
