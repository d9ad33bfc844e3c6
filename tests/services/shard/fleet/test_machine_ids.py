"""Ids of machines keep their rows, whatever is added, dropped and looked up."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.services.shard.fleet.machine_ids import MachineIds

# Few letters and lengths, so that ids begin like others, also like longer ones that come later.
_ID = st.text("ab", min_size=1, max_size=6)
_PAGE = st.lists(_ID, max_size=8, unique=True)


@given(st.lists(st.tuples(_PAGE, st.randoms(use_true_random=False)), max_size=8), _PAGE)
def test_rows_are_numbered_in_the_order_in_which_ids_were_added(
    steps: list[tuple[list[str], object]], asked: list[str]
) -> None:
    ids, known = MachineIds(), list[str]()
    for page, random in steps:
        new = [each for each in page if each not in known]
        ids.add(new)
        known += new
        kept = [random.random() < 0.8 for _ in known]  # type: ignore[attr-defined]
        ids.keep(np.array(kept, np.bool_))
        known = [each for each, stays in zip(known, kept, strict=True) if stays]
    wanted = [known.index(each) if each in known else -1 for each in asked]
    assert ids.rows(asked).tolist() == wanted == [ids.row(each) for each in asked]
    assert [ids.id(row) for row in range(len(ids))] == known
    assert ids.ranks.tolist() == [sorted(known).index(each) for each in known]


def test_ids_of_a_snapshot_stay_while_machines_come_and_go() -> None:
    ids = MachineIds()
    ids.add(["m-1", "m-2"])
    seen = ids.raw_of(slice(None))
    ids.add([f"m-{number}" for number in range(3, 40)])
    ids.keep(np.arange(len(ids)) > 1)
    ids.add(["a"])
    assert list(seen) == [b"m-1", b"m-2"]
