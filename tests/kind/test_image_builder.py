"""Keeping and forgetting of images, on an engine of files: an image is a file of its name."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kind.errors import KindError
from kind.images.base import PYTHON_BASE, SCRATCH
from kind.images.builder import Builder, Image
from kind.images.context import BinaryContext
from tests.kind.kind_rig import Machine

PODMAN = """\
images="{root}/store"; mkdir -p "$images"
name() {{ echo "$1" | tr / _; }}
case "$1" in
  image) for last; do :; done; test -e "$images/$(name "$last")" || exit 1 ;;
  build)
    for argument; do case "$argument" in --tag=*) tag="${{argument#--tag=}}" ;; esac; done
    cat "$argument"/bin/* > "$images/$(name "$tag")" ;;
  save) cp "$images/$(name "$4")" "$3" ;;
  rmi) rm "$images/$(name "$2")" ;;
esac
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def builder(machine: Machine) -> Builder:
    (machine.root / "Containerfile").write_text("FROM scratch AS kwok\n")
    (machine.root / "archives").mkdir()
    engine = machine.engine(PODMAN.format(root=machine.root))
    # This engine's script needs more of the host than its own sh.
    engine = replace(engine, environment={**engine.environment, "PATH": os.environ["PATH"]})
    return Builder(machine.root, machine.root / "archives", engine, lambda _: None)


def binary(machine: Machine, content: str) -> BinaryContext:
    path = machine.root / "kwok"
    path.write_text(content)
    return BinaryContext(path)


def resolved(builder: Builder, machine: Machine, content: str) -> Image:
    return builder.resolve("kwok", binary(machine, content), SCRATCH)


def builds(machine: Machine) -> int:
    return len([call for call in machine.calls if call.startswith("podman build")])


def test_what_did_not_change_is_not_built_again(builder: Builder, machine: Machine) -> None:
    assert resolved(builder, machine, "one") == resolved(builder, machine, "one")
    assert builds(machine) == 1


def test_a_changed_input_gives_another_image_and_keeps_the_recent_one(
    builder: Builder, machine: Machine
) -> None:
    one, other = resolved(builder, machine, "one"), resolved(builder, machine, "other")
    assert one.reference != other.reference
    assert (one.archive.read_text(), other.archive.read_text()) == ("one", "other")


def test_a_changed_containerfile_counts_as_a_changed_input(
    builder: Builder, machine: Machine
) -> None:
    one = resolved(builder, machine, "one")
    (machine.root / "Containerfile").write_text("FROM scratch AS kwok\nUSER 1\n")
    assert resolved(builder, machine, "one") != one


def test_of_one_target_the_five_used_last_are_kept(builder: Builder, machine: Machine) -> None:
    images = [resolved(builder, machine, str(number)) for number in range(5)]
    for second, image in enumerate(images):
        os.utime(image.archive, (second, second))
    resolved(builder, machine, "0")
    resolved(builder, machine, "new")
    kept = [image.archive.exists() for image in images]
    assert kept == [True, False, True, True, True]
    assert [builder.engine.has_image(image.reference) for image in images] == kept


def test_an_image_that_the_engine_lost_is_loaded_from_its_archive(
    builder: Builder, machine: Machine
) -> None:
    image = resolved(builder, machine, "one")
    builder.engine.run("rmi", image.reference)
    resolved(builder, machine, "one")
    assert machine.calls[-1] == f"podman load --input {image.archive}"
    assert builds(machine) == 1


def test_a_build_that_fails_leaves_no_archive(builder: Builder, machine: Machine) -> None:
    machine.has("podman", "exit 1")
    with pytest.raises(KindError, match="podman build"):
        resolved(builder, machine, "one")
    assert [path.name for path in builder.archives.iterdir()] == ["kwok.lock"]


@dataclass
class _Edited:
    """Sources that somebody edits while they are copied."""

    key: str = "before"

    def gather(self, directory: Path) -> None:
        (directory / "bin").mkdir()
        self.key = "after"


def test_sources_that_change_while_they_are_copied_make_no_image(builder: Builder) -> None:
    with pytest.raises(KindError, match="changed while they were copied"):
        builder.resolve("kwok", _Edited(), SCRATCH)
    assert not list(builder.archives.glob("*.tar"))


def test_python_images_stand_on_a_base_that_is_there_already(
    builder: Builder, machine: Machine
) -> None:
    base = machine.root / "store" / PYTHON_BASE.reference.replace("/", "_")
    base.parent.mkdir()
    base.touch()
    builder.resolve("bigfleet", binary(machine, "one"))
    [built] = [call for call in machine.calls if call.startswith("podman build")]
    assert f"--build-arg=BASE={PYTHON_BASE.reference}" in built
    assert "--network=none" in built
    assert not any(call.startswith("podman pull") for call in machine.calls)
