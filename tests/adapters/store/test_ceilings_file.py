"""The file of cluster ceilings."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from bigfleet.adapters.store.ceilings_file import CeilingsFile
from bigfleet.model.ceiling import HIGHEST_PRIORITY, Ceiling, Ceilings
from bigfleet.model.errors import InvalidInput


def read(directory: Path, text: str) -> Ceilings:
    """The ceilings of a file with this text."""
    path = directory / "ceilings.yaml"
    path.write_text(text)
    return CeilingsFile(path).current()


def test_a_cluster_inherits_omitted_keys_from_the_default(tmp_path: Path) -> None:
    """A cluster without an entry has the default."""
    found = read(
        tmp_path,
        "default: {priority: 10, machines: 5, dollarsPerHour: 2.5}\n"
        "clusters: {a: {machines: 7}, b: {priority: unlimited, dollarsPerHour: unlimited}, c: {}}",
    )
    assert found.of("a") == Ceiling(10, 7, 2.5)
    assert found.of("b") == Ceiling(HIGHEST_PRIORITY, 5, math.inf)
    assert found.of("c") == found.of("unknown") == Ceiling(10, 5, 2.5)


def test_omitted_values_are_unlimited(tmp_path: Path) -> None:
    assert read(tmp_path, "{}").of("any") == Ceiling() == read(tmp_path, "clusters: {}").of("any")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "None is not a mapping"),
        ("[1]", r"\[1\] is not a mapping"),
        ("default: {machines: 1", "is not valid YAML"),
        ("defaults: {}", "'defaults' is unknown; valid keys are default, clusters"),
        (
            "default: {machine: 1}",
            "default: 'machine' is unknown; valid keys are priority, machines",
        ),
        ("clusters: {7: {}}", "clusters: 7 is not a name; put quotes around numbers"),
        ("clusters: {a: {machines: 1}, a: {}}", "duplicate key 'a'"),
        ("clusters: {a: 3}", "clusters: a: 3 is not a mapping"),
        ("clusters: {a: {priority: 1.5}}", "clusters: a: priority: 1.5 is neither a whole"),
        ("default: {priority: 2147483648}", "2147483648 is neither a whole number of 32 bits"),
        ("default: {priority: high}", "'high' is neither a whole number of 32 bits nor unlimited"),
        ("default: {machines: 2.5}", "machines: 2.5 is neither a whole number >= 0"),
        ("default: {machines: true}", "machines: True is neither"),
        ("default: {dollarsPerHour: .nan}", "dollarsPerHour: nan is neither an amount >= 0"),
        ("default: {dollarsPerHour: -1}", "dollarsPerHour: -1 is neither an amount >= 0"),
        ("default: {dollarsPerHour: true}", "dollarsPerHour: True is neither"),
    ],
)
def test_an_invalid_file_is_rejected_with_path_key_and_value(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(InvalidInput, match=words) as refused:
        read(tmp_path, text)
    assert str(tmp_path / "ceilings.yaml") in str(refused.value)
