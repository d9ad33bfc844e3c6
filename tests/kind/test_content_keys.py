from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kind.content_key import content_key
from kind.rootfs import Base


def tree(root: Path) -> Path:
    (root / "package").mkdir(parents=True)
    (root / "package" / "a.py").write_text("a = 1\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    return root


@given(st.lists(st.text(), max_size=4), st.lists(st.text(), max_size=4))
def test_only_the_same_parts_in_the_same_order_share_a_key(
    one: list[str], other: list[str]
) -> None:
    assert (content_key(*one) == content_key(*other)) == (one == other)


def test_a_folders_key_is_its_content_not_its_place_or_its_times(tmp_path: Path) -> None:
    assert content_key(tree(tmp_path / "one")) == content_key(tree(tmp_path / "other"))


def test_a_folders_key_changes_with_a_byte_a_name_or_a_right(tmp_path: Path) -> None:
    folder = tree(tmp_path / "tree")
    seen = [content_key(folder)]
    (folder / "package" / "a.py").write_text("a = 2\n")
    seen.append(content_key(folder))
    (folder / "package" / "a.py").rename(folder / "package" / "b.py")
    seen.append(content_key(folder))
    (folder / "run.sh").chmod(0o755)
    seen.append(content_key(folder))
    assert len(set(seen)) == 4


def test_what_python_leaves_beside_its_sources_does_not_count(tmp_path: Path) -> None:
    folder = tree(tmp_path / "tree")
    before = content_key(folder)
    (folder / "package" / "__pycache__").mkdir()
    (folder / "package" / "__pycache__" / "a.pyc").write_bytes(b"\0")
    assert content_key(folder) == before


def test_a_base_is_named_by_what_is_installed_in_it() -> None:
    one, other = Base("base", ("bash",)), Base("base", ("bash", "jq"))
    assert one.reference != other.reference
    assert one.reference.startswith("localhost/base:")
