"""What the Containerfile copies into one image, gathered in a folder and named by its content."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kind.content_key import content_key, source_files
from kind.images.lock import needed_entries
from kind.images.packages import INSTALLED_FORM, install_packages, required_by
from kind.images.recipe import PythonRecipe


class Context(Protocol):
    """One image's inputs."""

    @property
    def key(self) -> str:
        """The same for the same inputs."""

    def gather(self, directory: Path) -> None:
        """Puts them where the Containerfile looks for them."""


@dataclass(frozen=True)
class PythonContext:
    """Folders of a checkout, the packages that the checkout's lock gives them, and `binaries`.

    The packages are kept installed in the work directory: they change far less often.
    """

    recipe: PythonRecipe
    checkout: Path
    work_directory: Path
    architecture: str
    environment: Mapping[str, str]
    binaries: Sequence[Path] = ()

    @property
    def key(self) -> str:
        """By the locked packages, the sources and the binaries themselves."""
        folders = [self.checkout / folder for folder in self.recipe.folders]
        parts = (*folders, *self.binaries)
        return content_key(self._requirements(), self.architecture, INSTALLED_FORM, *parts)

    def gather(self, directory: Path) -> None:
        """Fills packages/, app/ and bin/. Raises KindError where a package cannot be had."""
        shutil.copytree(self._packages(), directory / "packages", copy_function=os.link)
        for folder in self.recipe.folders:
            for file in source_files(self.checkout / folder):
                copy = directory / "app" / file.relative_to(self.checkout)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copy)
        _copy_binaries(self.binaries, directory)

    def _packages(self) -> Path:
        key = content_key(self._requirements(), self.architecture, INSTALLED_FORM)
        kept = self.work_directory / f"packages-{key}"
        if not kept.is_dir():
            with tempfile.TemporaryDirectory(prefix=".packages-", dir=kept.parent) as scratch:
                requirements = Path(scratch) / "requirements.txt"
                requirements.write_text(self._requirements(), encoding="utf-8")
                draft = Path(scratch) / "packages"
                install_packages(requirements, draft, self.architecture, self.environment)
                with suppress(OSError):  # another process was faster
                    draft.rename(kept)
        os.utime(kept)  # used now: what is not used for long is forgotten
        return kept

    def _requirements(self) -> str:
        lock = (self.checkout / "requirements.lock").read_text(encoding="utf-8")
        return needed_entries(lock, self.recipe.packages, required_by)


@dataclass(frozen=True)
class BinaryContext:
    """One static binary."""

    binary: Path

    @property
    def key(self) -> str:
        """By the binary's bytes."""
        return content_key(self.binary)

    def gather(self, directory: Path) -> None:
        """Fills bin/."""
        _copy_binaries((self.binary,), directory)


def _copy_binaries(binaries: Sequence[Path], directory: Path) -> None:
    (directory / "bin").mkdir()
    for binary in binaries:
        copy = directory / "bin" / binary.name
        shutil.copyfile(binary, copy)
        copy.chmod(0o755)
