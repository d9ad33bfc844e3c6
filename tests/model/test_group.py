"""Groups of needs and their texts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bigfleet.model.group import (
    ADDITIONAL,
    PLAIN,
    Additional,
    FoldedGangs,
    Group,
    Plain,
    PodGroup,
    group_of_text,
    group_text,
)

_TEXTS = st.one_of(
    st.sampled_from(["", "additional", "folded:", "folded:rack", "folded", "Additional"]), st.text()
)


@given(_TEXTS)
def test_every_text_is_that_of_exactly_one_group(text: str) -> None:
    """So groups that differ are never one need, and a key finds its need again."""
    assert group_text(group_of_text(text)) == text


def test_the_texts_of_groups_stay_as_they_are() -> None:
    """They are in journals, in machines' metadata and on the wire, also of older versions."""
    groups: dict[str, Group] = {
        "": PLAIN,
        '["team",[]]': PodGroup('["team",[]]'),
        "folded:kubernetes.io/hostname": FoldedGangs("kubernetes.io/hostname"),
        "additional": ADDITIONAL,
    }
    assert {text: group_of_text(text) for text in groups} == groups
    assert [group_text(group) for group in groups.values()] == [*groups]


def test_groups_of_one_content_are_equal_and_of_different_types_never() -> None:
    assert (Plain(), Additional()) == (PLAIN, ADDITIONAL)
    assert len({Plain(), Additional(), PodGroup("rack"), FoldedGangs("rack")}) == 4
