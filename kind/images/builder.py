"""Builds one image where its inputs changed, and keeps it as an archive named by its content."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from controlplane.cache import file_lock
from kind.command import run
from kind.content_key import content_key
from kind.engine import Engine
from kind.errors import KindError
from kind.images.base import known_bases, resolve_python_base
from kind.images.context import Context


@dataclass(frozen=True)
class Source:
    """A commit ("-dirty" behind it when files differ from it) and the repository's address.

    Either is empty where it is not known.
    """

    revision: str
    address: str


def source_of(checkout: Path, environment: Mapping[str, str]) -> Source:
    """What git says about a checkout."""

    def git(*arguments: str) -> str:
        try:
            answer = run(["git", "-C", str(checkout), *arguments], environment)
        except KindError:
            return ""
        return answer.decode("utf-8").strip()

    return Source(
        revision=git("describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"),
        address=git("remote", "get-url", "origin"),
    )


# Of one target, for whoever goes back and forth between revisions.
_RECENT = 5
_BUILD_SECONDS = 600.0
_ARCHIVE_SECONDS = 300.0
_PROGRESS_SECONDS = 15.0


@dataclass(frozen=True)
class Image:
    """An image by its name in the engine, and its archive for `kind load image-archive`."""

    reference: str
    archive: Path


@dataclass
class Builder:
    """Builds targets of a checkout's Containerfile, and keeps them in a folder of archives."""

    checkout: Path
    archives: Path
    engine: Engine
    progress: Callable[[str], None]

    def resolve(self, target: str, context: Context, base: str | None = None) -> Image:
        """The image on the given base, or on whichever one Python images were made before."""
        key = context.key
        bases = (base,) if base else known_bases()
        lock = self.archives / f"{target}.lock"
        with file_lock(lock, f"building {target}", self.progress, _PROGRESS_SECONDS):
            kept = self._kept([self._image(target, key, known) for known in bases])
            if kept is not None:
                return kept
            base = base or resolve_python_base(self.engine, self.archives, self.progress)
            image = self._image(target, key, base)
            self.progress(f"building {image.reference}")
            self._build(target, context, key, base, image)
        self._forget_unused(target)
        return image

    @property
    def _containerfile(self) -> Path:
        return self.checkout / "Containerfile"

    def _kept(self, images: Sequence[Image]) -> Image | None:
        for image in images:
            if image.archive.is_file():
                os.utime(image.archive)  # used now: see _forget_unused
                self._hand_to_engine(image)
                return image
        return None

    def _image(self, target: str, key: str, base: str) -> Image:
        key = content_key(self._containerfile, base, key)
        archive = self.archives / f"{target}-{key}.tar"
        return Image(f"localhost/{target}:{key}", archive)

    def _hand_to_engine(self, image: Image) -> None:
        if not self.engine.has_image(image.reference):
            self.engine.run("load", "--input", str(image.archive), timeout_seconds=_ARCHIVE_SECONDS)

    def _build(self, target: str, context: Context, key: str, base: str, image: Image) -> None:
        with tempfile.TemporaryDirectory(prefix=f".{target}-", dir=self.archives) as scratch:
            directory = Path(scratch) / "context"
            directory.mkdir()
            context.gather(directory)
            if context.key != key:
                raise KindError(f"{target}'s sources changed while they were copied: try again")
            arguments = _build_arguments(
                {"BASE": base, **_stated(source_of(self.checkout, self.engine.environment))}
            )
            self.engine.run(
                *("build", "--network=none", f"--file={self._containerfile}", f"--target={target}"),
                *(f"--tag={image.reference}", *arguments, str(directory)),
                timeout_seconds=_BUILD_SECONDS,
            )
            draft = Path(scratch) / "image.tar"
            self.engine.run(
                *("save", "--output", str(draft), image.reference),
                timeout_seconds=_ARCHIVE_SECONDS,
            )
            os.replace(draft, image.archive)

    def _forget_unused(self, target: str) -> None:
        """Each has a few hundred megabytes; others may still be comparing with a recent one."""
        for archive in _all_but_recent(self.archives.glob(f"{target}-*.tar")):
            archive.unlink(missing_ok=True)
            key = archive.stem.rpartition("-")[2]
            with suppress(KindError):  # used by a container, or gone
                self.engine.run("rmi", f"localhost/{target}:{key}")
        for packages in _all_but_recent(self.archives.glob("packages-*")):
            shutil.rmtree(packages, ignore_errors=True)


def _all_but_recent(paths: Iterable[Path]) -> list[Path]:
    """All but those that were used last."""
    return sorted(paths, key=_last_used, reverse=True)[_RECENT:]


def _last_used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # forgotten by another process just now
        return 0.0


def _stated(source: Source) -> dict[str, str]:
    return {
        "VERSION": version("bigfleet"),
        "REVISION": source.revision,
        "SOURCE": source.address,
    }


def _build_arguments(values: Mapping[str, str]) -> list[str]:
    return [f"--build-arg={name}={value}" for name, value in values.items()]
