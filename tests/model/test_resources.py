"""Quantities become int64 once, and rounding never makes something appear to fit that does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.model import resources
from bigfleet.model.errors import InvalidInput

RESOURCES = st.sampled_from(["cpu", "memory", "pods", "nvidia.com/gpu", "hugepages-2Mi"])


@pytest.mark.parametrize(
    ("resource", "quantity", "units"),
    [
        ("cpu", "500m", 500),
        ("cpu", "2", 2000),
        ("cpu", "1.5", 1500),
        ("cpu", "1e3", 1_000_000),
        ("memory", "1Gi", 2**20),
        ("memory", "1024", 1),
        ("memory", "128974848", 125952),
        ("memory", "1G", 976563),
        ("nvidia.com/gpu", "8", 8000),
        ("pods", "110", 110_000),
    ],
)
def test_known_quantities(resource: str, quantity: str, units: int) -> None:
    """CPU counts in millicores, bytes in KiB, the rest in thousandths."""
    assert resources.parse(resource, quantity, round_up=True) == units


def test_requests_round_up_and_capacity_rounds_down() -> None:
    """A request of one byte takes a whole KiB; one byte less than a KiB of capacity is none."""
    assert resources.parse_requests({"memory": "1"}) == {"memory": 1}
    assert resources.parse_capacity({"memory": "1023"}) == {"memory": 0}


@pytest.mark.parametrize(
    "bad", ["", "x", "1 Gi", "1gi", "--1", "1e999", "NaN", "inf", "1.2.3", "0x10"]
)
def test_malformed_quantities_are_refused(bad: str) -> None:
    """The error names the resource and the text."""
    with pytest.raises(InvalidInput, match="memory"):
        resources.parse("memory", bad, round_up=True)


@pytest.mark.parametrize("bad", ["-1", "-500m", "4611686018427387904Ki", "9E"])
def test_impossible_amounts_are_refused(bad: str) -> None:
    """Negative or absurd amounts never reach a sum."""
    with pytest.raises(InvalidInput):
        resources.parse("memory", bad, round_up=True)


@given(RESOURCES, st.integers(0, resources.MAX_MACHINE_UNITS))
def test_text_and_parse_are_inverse(resource: str, units: int) -> None:
    """What goes out on the wire comes back as the same number of units."""
    for round_up in (True, False):
        assert (
            resources.parse(resource, resources.text(resource, units), round_up=round_up) == units
        )


@given(RESOURCES, st.text(alphabet="0123456789.eEkKMGTPimnu+-", max_size=12))
def test_any_text_is_an_amount_or_a_clear_error(resource: str, text: str) -> None:
    """No text makes parsing fail in any other way."""
    try:
        units = resources.parse(resource, text, round_up=True)
    except InvalidInput as error:
        units = 0 if error.what == resource else -1
    assert 0 <= units <= resources.MAX_MACHINE_UNITS


def test_half_a_million_machines_sum_without_overflow() -> None:
    """The largest accepted amount times 500,000 stays below 2**63."""
    assert resources.MAX_MACHINE_UNITS * 500_000 < 2**63
