from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from kind.errors import KindError
from kind.images.context import PythonContext
from kind.images.lock import entries, needed_entries, normal
from kind.images.packages import install_command, required_by
from kind.images.recipe import PYTHON_IMAGES

ROOT = Path(__file__).parent.parent.parent
LOCK = """\
a==1.0 \\
    --hash=sha256:aa
b-b==2.0 ; sys_platform == 'win32' \\
    --hash=sha256:bb \\
    --hash=sha256:bc
c==3.0 \\
    --hash=sha256:cc
"""


def requirements(package: str) -> list[str]:
    return {"a": ["B_B>=1", "absent ; extra == 'dev'", "c[x]>=2 ; extra == 'dev'"]}.get(package, [])


def test_a_packages_entry_brings_its_hashes_and_markers() -> None:
    assert needed_entries(LOCK, ["c"], requirements) == "c==3.0 \\\n    --hash=sha256:cc\n"


def test_what_a_package_needs_comes_along_and_its_extras_do_not() -> None:
    assert list(entries(needed_entries(LOCK, ["A"], requirements))) == ["a", "b-b"]


def test_a_package_that_the_lock_does_not_pin_is_named() -> None:
    with pytest.raises(KindError, match=r"does not pin numba, zope-event: run `make lock`"):
        needed_entries(LOCK, ["a", "Zope.Event", "numba"], requirements)


def imported(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield (node.module or "").partition(".")[0]


@pytest.mark.parametrize("name", sorted(PYTHON_IMAGES))
def test_an_image_holds_exactly_the_packages_that_its_code_imports(name: str) -> None:
    """A new import must not fail in the container first, nor a dropped one stay behind."""
    recipe = PYTHON_IMAGES[name]
    modules = {module for folder in recipe.folders for module in imported(ROOT / folder)}
    foreign = modules - sys.stdlib_module_names - set(recipe.folders)
    providers = packages_distributions()
    assert {normal(providers[module][0]) for module in foreign} == set(map(normal, recipe.packages))


@pytest.mark.parametrize("name", sorted(PYTHON_IMAGES))
def test_an_image_gets_the_binaries_that_its_code_starts(name: str) -> None:
    """They are gathered for it; its part of the Containerfile has to copy them."""
    text = (ROOT / "Containerfile").read_text()
    [part] = [each for each in text.split("\nFROM ") if each.startswith(f"python AS {name}\n")]
    assert bool(PYTHON_IMAGES[name].binaries) == ("COPY bin/ /usr/local/bin/" in part)


def test_bigfleets_image_has_nothing_of_the_load_generator() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pinned = entries(needed_entries(lock, PYTHON_IMAGES["bigfleet"].packages, required_by))
    assert "aiohttp" in pinned
    assert not {"locust", "gevent", "flask", "pytest", "mypy"} & set(pinned)


def test_packages_are_wheels_for_the_image_checked_by_their_hashes(tmp_path: Path) -> None:
    command = install_command(tmp_path / "r.txt", tmp_path / "packages", "arm64")
    assert {"--require-hashes", "--only-binary=:all:", "--no-deps"} <= set(command)
    assert "--platform=manylinux_2_28_aarch64" in command
    assert "--python-version=3.11" in command


def test_an_architecture_without_packages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KindError, match="riscv64"):
        install_command(tmp_path, tmp_path, "riscv64")


def test_another_binary_in_a_python_image_makes_another_image(tmp_path: Path) -> None:
    """The image of every role carries the etcd that a coordinator starts."""
    recipe = PYTHON_IMAGES["bigfleet"]
    assert recipe.binaries == ("etcd",)
    etcd = tmp_path / "etcd"
    keys = set()
    for content in ("one", "another"):
        etcd.write_text(content)
        keys.add(PythonContext(recipe, ROOT, tmp_path, "amd64", {}, [etcd]).key)
    assert len(keys) == 2
